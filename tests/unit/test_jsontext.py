"""JSON kept as received: what is refused, what is the same request, and that hostile input is cheap to refuse (C03)."""

from __future__ import annotations

import hashlib
import json
import time

import pytest

from ringfence import jsontext
from ringfence.errors import Rejected

HOSTILE = {
    "20,000 brackets": ("[" * 20_000 + "]" * 20_000, "too-deep"),
    "unclosed brackets": ("[" * 20_000, "too-deep"),
    "33 levels": ("[" * 33 + "]" * 33, "too-deep"),
    "brackets of objects": ('{"a":' * 33 + "1" + "}" * 33, "too-deep"),
    "NaN": ('{"a":NaN}', "not-json"),
    "infinity": ("[-Infinity]", "not-json"),
    "beyond a double": ("[1e999]", "number-out-of-range"),
    "a key twice": ('{"a":1,"a":2}', "duplicate-key"),
    "a key twice, escaped": ('{"a":1,"\\u0061":2}', "duplicate-key"),
    "a 5,000-digit integer": ("1" * 5_000, "number-too-long"),
    "a lone surrogate": ('"\\ud800"', "lone-surrogate"),
    "a lone surrogate as a key": ('{"\\udfff":1}', "lone-surrogate"),
    "a raw lone surrogate": ('"\ud800"', "lone-surrogate"),
    "a byte order mark": ("\ufeff{}", "not-json"),
    "nothing": ("", "not-json"),
    "white space": ("  ", "not-json"),
    "two values": ("{} {}", "not-json"),
    "an unclosed string": ('"' + "[" * 100, "not-json"),
    "a raw control character": ('"\x00"', "not-json"),
}


@pytest.mark.parametrize(("text", "kind"), HOSTILE.values(), ids=HOSTILE.keys())
def test_c03_hostile_json_is_refused_quickly_with_its_own_kind(text: str, kind: str) -> None:
    started = time.process_time()
    with pytest.raises(Rejected) as refusal:
        jsontext.check(text)
    assert refusal.value.kind == kind
    assert refusal.value.status in (400, 422)
    assert time.process_time() - started < 0.2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 32 + "]" * 32,
        '{"deep in a string": "' + "[" * 500 + '"}',
        '"an escaped quote \\" and then [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["',
        "1e308",
        "-0.0",
        str(2**53 + 1),
        str(10**300),
        '"\\ud83d\\ude00"',
        '"\\u0000\\u202e"',
        "null",
    ],
)
def test_legal_json_is_taken_however_odd(text: str) -> None:
    jsontext.check(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
        ('{"a":"\\u00e9"}', '{"a":"é"}'),
        ('{"a":{"y":[1,2],"x":null}}', '{"a":{"x":null,"y":[1, 2]}}'),
    ],
)
def test_c02_key_order_white_space_and_escapes_make_no_other_request(one: str, other: str) -> None:
    assert jsontext.canonical(one) == jsontext.canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"amount":1}', '{"amount":2}'),
        ('{"amount":1}', '{"amount":1.0}'),
        ("100000", "1E5"),
        ("0.0", "-0.0"),
        ("1", '"1"'),
        ("[1]", '["#","1"]'),
        ('["[",1]', "[[1]]"),
        ("[]", "{}"),
        (str(2**53), str(2**53 + 1)),
        ("true", '"true"'),
    ],
)
def test_c02_what_differs_as_written_is_another_request(one: str, other: str) -> None:
    assert jsontext.canonical(one) != jsontext.canonical(other)


def test_the_canonical_form_is_json_itself() -> None:
    assert json.loads(jsontext.canonical('{"b":[1.50,"x"],"a":null}')) == {"a": None, "b": ["[", ["#", "1.50"], "x"]}


def test_the_hash_is_of_the_text_in_utf_8() -> None:
    assert jsontext.sha256('"é"') == hashlib.sha256('"é"'.encode()).hexdigest()
