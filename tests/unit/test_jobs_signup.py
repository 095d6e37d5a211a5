"""The example job signup: a user in two tables, or in neither."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import app
from ringfence.job import Job, State
from ringfence.testing.port_faults import Faulty, reply_lost
from ringfence.testing.system import MemorySystem

TABLES = {"Users": ["email"], "Profiles": ["email"]}


def system(*faults: Any) -> MemorySystem:
    return MemorySystem(app, tables=TABLES, wrap=lambda name, port: Faulty(port, faults) if name == "ledger" else port)


def sign_up(here: MemorySystem, payload: str) -> Job:
    job = here.submit("signup", payload)
    here.run_relay()
    here.run_worker()
    return here.job(job.job_id)


def rows(here: MemorySystem, email: str) -> tuple[Any, Any]:
    return tuple(here.memory_ledger.read_item(table, {"email": email}) for table in TABLES)  # type: ignore[return-value]


def test_a_user_is_in_both_tables() -> None:
    here = system()
    job = sign_up(here, '{"email":"ada@example.com","name":"Ada"}')
    assert (job.state, job.result) == (State.SUCCEEDED, '{"email":"ada@example.com"}')
    user, profile = rows(here, "ada@example.com")
    assert user == {"email": "ada@example.com", "name": "Ada", "signup": job.job_id}
    assert profile == {"email": "ada@example.com", "display_name": "Ada"}


def test_an_address_that_is_taken_changes_neither_table() -> None:
    here = system()
    sign_up(here, '{"email":"ada@example.com","name":"Ada"}')
    before = rows(here, "ada@example.com")
    second = sign_up(here, '{"email":"ada@example.com","name":"Somebody else"}')
    assert second.state is State.DEAD
    assert "put Users" in (second.error or "")
    assert rows(here, "ada@example.com") == before


def test_a_commit_whose_reply_is_lost_signs_up_once_and_does_not_take_its_own_address_for_taken() -> None:
    here = system(reply_lost("write", where=lambda change, effects=(), **_: bool(effects)))
    job = sign_up(here, '{"email":"ada@example.com","name":"Ada"}')
    assert len(here.ledger.fired) == 1
    assert (job.state, job.attempts) == (State.SUCCEEDED, 1)


@pytest.mark.parametrize("payload", ['{"email":"nobody","name":"A"}', '{"email":"a@b","name":""}', '{"email":"a@b"}'])
def test_what_is_no_user_is_dead_before_anything_is_written(payload: str) -> None:
    job = sign_up(system(), payload)
    assert job.state is State.DEAD
    assert "the payload does not fit signup" in (job.error or "")
