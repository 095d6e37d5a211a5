"""Which texts lie in the row. That rows then stay within 1 KB is tested on stored rows in tests/contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence import transitions
from ringfence.aws.itemsize import item_bytes
from ringfence.aws.layout import ROW_BYTES, texts_apart_of_change, texts_apart_of_row
from ringfence.aws.rows import to_item
from ringfence.change import Change, Unset, apply
from ringfence.job import Job, State

NOW = 1_700_000_000_001


def job(payload: str | None = "{}", state: State = State.RUNNING, **fields: object) -> Job:
    defaults = {
        "job_id": "a" * 26,
        "tenant": "acme",
        "queue": "default",
        "name": "index",
        "payload": payload,
        "payload_sha256": "ab" * 32,
        "state": state,
        "write_id": "w" * 16,
        "attempt_id": "a" * 16,
        "created_at": NOW,
    }
    return Job(**{**defaults, **fields})  # type: ignore[arg-type]


def ended(seen: Job, result: str) -> Change:
    return transitions.succeed(seen, result, write_id="x" * 16, now=NOW, expires_at=NOW // 1000)


@pytest.mark.parametrize(("size_bytes", "apart"), [(0, False), (600, False), (601, True), (32 * 1024, True)])
def test_a_payload_of_up_to_600_bytes_lies_in_the_row(size_bytes: int, apart: bool) -> None:
    assert bool(texts_apart_of_row(job("x" * size_bytes, State.QUEUED))) is apart


def test_sizes_are_bytes_not_characters() -> None:
    assert texts_apart_of_row(job("é" * 300, State.QUEUED)) == {}
    assert texts_apart_of_row(job("é" * 301, State.QUEUED)) == {"payload": "p" + "w" * 16}


def test_the_sort_key_is_of_its_own_for_every_write() -> None:
    assert texts_apart_of_change(ended(job(), "x" * 700)) == {"result": "r" + "x" * 16}


def test_a_result_goes_apart_where_the_payload_leaves_no_room() -> None:
    assert texts_apart_of_change(ended(job("x" * 100), "y" * 500)) == {}
    assert texts_apart_of_change(ended(job("x" * 600), "y" * 500)) == {"result": "r" + "x" * 16}


def test_a_payload_that_was_not_loaded_is_taken_for_one_in_the_row() -> None:
    assert texts_apart_of_change(ended(job(None), "y" * 500)) == {"result": "r" + "x" * 16}


def test_a_change_that_writes_no_text_needs_nothing_apart() -> None:
    beat = transitions.heartbeat(job("x" * 5_000), write_id="x", lease_until=NOW, progress=None)
    assert texts_apart_of_change(beat) == {}


def test_without_the_row_seen_every_text_goes_apart() -> None:
    blind = Change(job_id="a", write_id="w", condition=Unset("due_id"), set={"error": "e", "checkpoint": None})
    assert texts_apart_of_change(blind) == {"error": "ew"}


@given(st.integers(0, 700), st.integers(0, 700), st.integers(0, 700), st.integers(1, 150))
def test_no_text_takes_a_row_beyond_one_kb(payload: int, checkpoint: int, error: int, name: int) -> None:
    """Texts written one after the other, each with what the earlier ones left."""
    new = job("p" * payload, State.QUEUED, name="n" * name)
    apart = texts_apart_of_row(new)
    saved = transitions.checkpoint(new, "c" * checkpoint, write_id="1" * 16)
    apart |= texts_apart_of_change(saved)
    after = apply(saved, new)
    dead = transitions.give_up(after, "e" * error, write_id="2" * 16, now=NOW, expires_at=NOW // 1000)
    apart |= texts_apart_of_change(dead)
    assert item_bytes(to_item(apply(dead, after), apart)) <= ROW_BYTES
