"""A table of jobs is named in three places of the template. The one that is forgotten for one's own is named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .conftest import Stack
from .policies import Request, allows
from .test_iam_requests import OF_JOBS

Place = Callable[[Stack, str], bool]
"""Given the stack and the table's logical id: true if the place names the table."""


def is_there(stack: Stack, table: str) -> bool:
    return table in stack.of_type("AWS::DynamoDB::Table")


def is_told_of(stack: Stack, table: str) -> bool:
    return table in stack.tables.values()


def is_allowed(stack: Stack, table: str) -> bool:
    return all(allows(stack, "WorkerRole", Request(action, table)) for action in OF_JOBS)


PLACES: Mapping[str, Place] = {
    "the table itself": is_there,
    "RINGFENCE_TABLES, with the example tables and without": is_told_of,
    "WorkerPolicy, with the example tables and without": is_allowed,
}


def missed(stack: Stack, table: str) -> list[str]:
    return [place for place, names in PLACES.items() if not names(stack, table)]


def test_every_table_of_the_jobs_is_named_in_every_place(any_stack: Stack) -> None:
    tables = {*any_stack.of_type("AWS::DynamoDB::Table"), *any_stack.tables.values()} - {"LedgerTable"}

    assert {table: missed(any_stack, table) for table in tables} == {table: [] for table in tables}
