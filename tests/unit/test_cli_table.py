"""Tables on terminals of any width: nothing but the last column is ever broken."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console

from ringfence.cli.table import laid_out

HEADINGS = ["job", "state", "name", "queue", "attempts", "created", "error"]
WELL = ["k5u3c6mwzq2yxj7v4n8d2h6t3e", "succeeded", "index_module", "default", "1", "2026-12-01T14:03:22Z", ""]
BADLY = [
    "m5u3c6mwzq2yxj7v4n8d2h6t3e",
    "dead",
    "charge",
    "priority",
    "5",
    "2026-12-01T14:04:22Z",
    "there is no account 日本 " * 5,
]


def lines(width: int) -> list[list[str]]:
    return list(laid_out(HEADINGS, [WELL, BADLY], Console(width=width)))


def test_a_wide_terminal_has_one_line_for_each_row_and_folds_the_last_column_at_words() -> None:
    heading, well, badly = lines(140)
    assert [text.split() for text in heading] == [HEADINGS]
    assert well == ["k5u3c6mwzq2yxj7v4n8d2h6t3e  succeeded  index_module  default   1         2026-12-01T14:03:22Z"]
    assert len(badly) > 1
    assert {text[: heading[0].index("error")].strip() for text in badly[1:]} == {""}
    assert " ".join(text[heading[0].index("error") :].strip() for text in badly) == BADLY[-1].strip()


def test_eighty_columns_have_what_finds_no_room_on_a_line_below() -> None:
    heading, well, badly = lines(80)
    assert heading == [
        "job                         state      name          queue     attempts",
        "  created               error",
    ]
    assert well == [
        "k5u3c6mwzq2yxj7v4n8d2h6t3e  succeeded  index_module  default   1",
        "  2026-12-01T14:03:22Z",
    ]
    assert badly[1].startswith("  2026-12-01T14:04:22Z  there is no account")


@pytest.mark.parametrize("width", [28, 40, 60, 80, 100, 120, 140, 300])
def test_nothing_is_wider_than_the_terminal_and_no_value_but_the_last_is_broken(width: int) -> None:
    told = lines(width)
    assert max(cell_len(text) for row in told for text in row) <= width
    for row, values in zip(told, (HEADINGS, WELL, BADLY), strict=True):
        assert " ".join(row).split() == " ".join(values).split()


def test_a_terminal_that_is_too_narrow_for_an_id_has_it_whole_all_the_same() -> None:
    assert lines(10)[1][0] == WELL[0]


def test_no_rows_are_a_line_of_headings() -> None:
    assert list(laid_out(HEADINGS, [], Console(width=80))) == [["  ".join(HEADINGS)]]
