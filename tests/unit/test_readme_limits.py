"""The README's table of limits says what the code holds to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

UNITS = {"KiB": 1024, "MiB": 1024**2, "hours": 3_600, "days": 86_400}


def printed() -> list[tuple[str, str]]:
    """The amounts of the table, each with the constant that stands beside it."""
    table = README.partition("\n## Limits\n")[2].partition("\n## ")[0]
    pairs: list[tuple[str, str]] = []
    for line in table.strip().splitlines()[2:]:
        _, _, amounts, held_by, _ = line.split("|")
        constants = re.findall(r"`([a-z_.]+\.[A-Za-z_]+)`", held_by)
        assert len(amounts.split(";")) == len(constants), line
        pairs += zip((amount.strip() for amount in amounts.split(";")), constants, strict=True)
    return pairs


def held(constant: str) -> Any:
    module, _, name = constant.rpartition(".")
    return getattr(importlib.import_module(f"ringfence.{module}"), name)


def most_of(limit: Any) -> float:
    """The most that a constant lets through: a number itself, the largest that a type takes, the longest text of a pattern."""
    if isinstance(limit, str):
        return max(length for length in range(2_000) if re.match(limit, "a" * length))
    if isinstance(limit, int | float):
        return limit
    (meta,) = (each for each in limit.__metadata__ if isinstance(each, msgspec.Meta))
    assert meta.le is not None
    return meta.le


@pytest.mark.parametrize(("amount", "constant"), printed())
def test_a_limit_is_what_is_printed(amount: str, constant: str) -> None:
    number, _, unit = amount.partition(" ")
    printed_number = float(number.replace(",", ""))
    assert most_of(held(constant)) in (printed_number, printed_number * UNITS.get(unit, 1))


def test_the_limits_are_found() -> None:
    assert len(printed()) > 15
