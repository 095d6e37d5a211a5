"""Text made fit for a terminal."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.cli.shown import json_line, safe


@given(st.text())
def test_shown_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = safe(text)
    assert shown.isprintable()
    assert not set(shown) & set("\n\r\x1b\x7f\x9b\xad\u202e\u2066\u2028\u200f\ufeff")


def test_what_is_written_out_can_be_read() -> None:
    assert safe("a\x1b[2J\u202e\U000e0041") == "a\\x1b[2J\\u202e\\U000e0041"


def test_ordinary_text_of_every_language_is_left_alone() -> None:
    text = "Grüße, 世界 😀 — naïve «quotes»"
    assert safe(text) == text


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_on_one_line_of_ascii_says_the_same(value: object) -> None:
    line = json_line(json.dumps(value, ensure_ascii=False, indent="\t"))
    assert line.isascii()
    assert not set(line) & set("\n\r\t\x7f\x1b")
    assert json.loads(line) == value


def test_json_keeps_the_spelling_of_numbers() -> None:
    assert (
        json_line('{"a":\t1.10,\r\n"b": 1E5, "c": "é\x7f😀"}') == '{"a": 1.10,  "b": 1E5, "c": "\\u00e9\\u007f\\ud83d\\ude00"}'
    )
