"""Made-up bytes, texts and documents: some of nothing, some that are nearly what a reader waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
"""NaN and infinities among it, and numbers beyond every range."""

ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "#",
        "key#0",
        "queue#",
        "a" * 65,
        "\ud800",
        "\u202e",
        "null",
        "{",
        "[" * 2_000,
        '"',
        "1e999",
        "9" * 5_000,
        "é" * 300,
    ]
)


def mostly(times: int, usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these, the usual one so many times as often as any of the others.

    Hypothesis' own ``one_of`` takes what is repeated for one, and the branches of a choice for choices of its own.
    """
    choices = [usual] * times + [*others]

    def chosen(number: int) -> st.SearchStrategy[Any]:
        return choices[number]

    return st.integers(0, len(choices) - 1).flatmap(chosen)


def exactly(value: Any) -> st.SearchStrategy[Any]:
    """The value itself. A strategy in it, at any depth, stands for what it makes up."""
    match value:
        case dict():
            return st.fixed_dictionaries({name: exactly(member) for name, member in value.items()})
        case list():
            return st.tuples(*map(exactly, value)).map(list)
    return value if isinstance(value, st.SearchStrategy) else st.just(value)


def nearly(value: Any) -> st.SearchStrategy[Any]:
    """The value as `exactly` has it, but for a few members, at any depth, that are left out, replaced or joined by others."""
    match value:
        case dict():
            members = {name: nearly(member) for name, member in value.items()}
            whole = st.fixed_dictionaries(members)
            with_gaps = st.builds(_without, whole, st.sets(st.sampled_from(sorted(members)), max_size=2))
            # A name that is no Unicode is refused with the whole, which is another test's.
            names = st.text(max_size=8) | ODD_TEXTS.filter(lambda text: text != "\ud800")
            with_more = st.builds(dict.__or__, whole, st.dictionaries(names, JSON, max_size=2))
            return mostly(6, whole, with_gaps, with_more, JSON)
        case list():
            members = [nearly(member) for member in value]
            return mostly(6, st.tuples(*members).map(list), st.lists(mostly(1, *members), max_size=3), JSON)
    return mostly(24, exactly(value), ODD_TEXTS, JSON)


def texts_of(documents: st.SearchStrategy[Any], separators: tuple[str, str] = (",", ":")) -> st.SearchStrategy[str]:
    """As JSON texts, some of them cut off, with a doubled end, or with bytes turned over."""
    whole = documents.map(lambda document: json.dumps(document, separators=separators))

    def broken(text: str, at: int, how: Callable[[str, int], str]) -> str:
        return how(text, at % (len(text) + 1))

    ways = st.sampled_from([_cut, _doubled, _with_a_stranger])
    return mostly(6, whole, st.builds(broken, whole, st.integers(0, 10_000), ways), ODD_TEXTS, st.text())


def _without(document: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: member for name, member in document.items() if name not in names}


def _cut(text: str, at: int) -> str:
    return text[:at]


def _doubled(text: str, at: int) -> str:
    return text + text[at:]


def _with_a_stranger(text: str, at: int) -> str:
    return text[:at] + chr(at % 0x300) + text[at + 1 :]


def bytes_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    encoded = st.sampled_from(["utf-8"] * 6 + ["utf-16", "latin-1"])
    magic = st.sampled_from([b"\x1f\x8b", b"\xf3\x89\x9a\xc2", b"\xef\xbb\xbf", b"\x80\x04\x95", b""])
    said = st.builds(
        lambda text, encoding: text.encode(encoding, "replace" if encoding == "latin-1" else "surrogatepass"), texts, encoded
    )
    return mostly(4, said, st.binary(), st.builds(bytes.__add__, magic, said))
