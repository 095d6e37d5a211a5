"""Tenants apart: on every operation that the API describes, another's jobs are as if they had never been.

`ROWS` has a row for each operation, so that one without a row fails here before it can show anybody anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from ringfence.ports import SetAside
from ringfence.testing.memory_api import Answered, MemoryApi

from .conftest import new_api
from .operations import OPERATIONS, Operation

UNKNOWN_ID = "a" * 26
SECRET = "nobodyelsesbusiness"
BODY = json.dumps({"name": "echo", "payload": {"said": SECRET}})


class Two:
    """An API with a tenant that has something of everything, and one that has nothing and looks around."""

    def __init__(self) -> None:
        self.api = new_api()
        self.theirs, self.mine = self.api.key("theirs"), self.api.key("mine", scopes={"submit", "read", "operate"})

    def lives_a_little(self) -> Two:
        """The other tenant has a job in every state, a keyed one, one with its own cursor, and an entry in the quarantine."""
        self.queued = self.submit(idempotency_key="k")
        self.submit(BODY[:-1] + ',"delay_seconds":100000}')
        self.dead = self.submit(json.dumps({"name": "fail", "payload": {"reason": SECRET}}), "priority")
        self.api.system.run_relay()
        self.api.system.run_worker(queue="priority")
        self.cursor = str(self.send(self.theirs, "GET", "/v1/jobs?limit=1").document["cursor"])
        self.api.system.quarantine.put(
            SetAside(source="log:0", position="1", reason=SECRET, data=b"x", at=self.api.clock.now(), job_id=self.queued)
        )
        assert self.states() == ["dead", "queued", "scheduled"]
        return self

    def submit(self, body: str = BODY, queue: str = "default", **headers: str) -> str:
        document = json.dumps({**json.loads(body), "queue": queue})
        answer = self.api.request("POST", "/v1/jobs", document, key=self.theirs, **headers)
        assert answer.status == 202
        return str(answer.document["job_id"])

    def send(self, key: str | None, method: str, target: str, body: str | None = None, **headers: str) -> Answered:
        return self.api.request(method, target, body, key, **headers)

    def looks(
        self, operation: Operation, suffix: str = "", body: str | None = None, job_id: str = "", **headers: str
    ) -> Answered:
        """What the second tenant is answered."""
        parts = {"job_id": job_id} if job_id else {}
        return self.send(self.mine, operation.method, operation.target(**parts) + suffix, body, **headers)

    def states(self) -> list[str]:
        return sorted(str(job.state) for job in self.api.system.memory_ledger.all_jobs() if job.tenant == "theirs")


def the_same_bytes(answers: list[Answered]) -> Answered:
    """They are one answer: status, headers, and the body to the byte."""
    first, *others = answers
    for other in others:
        assert other == first
    return first


# --- a row for each operation ----------------------------------------------------------------------------------------


def by_id(*attempts: Mapping[str, Any]) -> Callable[[Operation], None]:
    """Another's job is a 404, the very one of an unknown job and of what cannot be an id; and nothing happens to it."""

    def check(operation: Operation) -> None:
        two = Two().lives_a_little()
        before = two.api.system.memory_ledger.all_jobs()
        for attempt in attempts:
            for job_id in (two.queued, two.dead):
                asked = (job_id, UNKNOWN_ID, "%2e%2e", job_id.upper(), job_id + "%00", "theirs%23" + job_id)
                answer = the_same_bytes([two.looks(operation, job_id=each, **attempt) for each in asked])
                assert (answer.status, answer.kind) == (404, "not-found")
                assert answer.headers.keys() == {"content-type", "x-content-type-options"}
        assert two.api.system.memory_ledger.all_jobs() == before
        assert two.api.clock.monotonic() == 0, "a wait for another's job would tell that it is there"

    return check


def lists(*suffixes: str) -> Callable[[Operation], None]:
    """The list is the one that it would be if the other tenant did not exist."""

    def check(operation: Operation) -> None:
        full, empty = Two().lives_a_little(), Two()
        for suffix in suffixes:
            answer = the_same_bytes([full.looks(operation, suffix), empty.looks(operation, suffix)])
            assert answer.status == 200
            assert SECRET not in answer.text
        assert SECRET in full.send(full.theirs, operation.method, operation.target()).text, "and its owner sees it"

    return check


def lists_with_cursors(operation: Operation) -> None:
    lists("", "?state=dead", "?state=queued&queue=default", "?queue=priority&limit=100")(operation)
    two = Two().lives_a_little()
    foreign = two.looks(operation, f"?limit=1&cursor={quote(two.cursor)}")
    assert (foreign.status, foreign.kind) == (400, "bad-cursor")
    two.send(two.mine, "POST", "/v1/jobs", BODY)
    two.send(two.mine, "POST", "/v1/jobs", BODY)
    of_another_listing = two.looks(operation, "?limit=1").document["cursor"]
    assert the_same_bytes([foreign, two.looks(operation, f"?limit=1&state=dead&cursor={quote(of_another_listing)}")])


def submits(operation: Operation) -> None:
    """Another's idempotency key is a key like any other: the same request is a job of one's own, and so is a different one."""
    for body in (BODY, json.dumps({"name": "fail", "payload": [1]})):
        for named in ("header", "field"):
            full, empty = Two().lives_a_little(), Two()
            before = full.states()
            in_body = body if named == "header" else json.dumps({**json.loads(body), "idempotency_key": "k"})
            headers = {"idempotency_key": "k"} if named == "header" else {}
            mine, alone = (two.looks(operation, "", in_body, **headers) for two in (full, empty))
            assert mine == alone
            assert (mine.status, mine.document["repeated"]) == (202, False)
            assert mine.document["job_id"] != full.queued
            assert full.states() == before


def shows_what_is_everybodys(operation: Operation) -> None:
    """The deployment's own: one answer for all, which names no tenant and no job."""
    two = Two().lives_a_little()
    answer = the_same_bytes([two.looks(operation), two.send(two.theirs, operation.method, operation.target())])
    assert answer.status == 200
    assert not [said for said in (SECRET, two.queued, two.dead, "theirs", "mine") if said in answer.text]


def is_for_admins(operation: Operation) -> None:
    """What would change everybody's: refused without the scope ``admin``, whatever is sent, and nothing changes."""
    two = Two().lives_a_little()
    for body in (None, "{", '{"paused":true}'):
        refused = two.looks(operation, "", body)
        assert (refused.status, refused.kind) == (403, "forbidden")
    assert two.api.queue_settings.all() == {}


def is_public(operation: Operation) -> None:
    """Without a key, with anybody's, with a wrong one: the same bytes."""
    two = Two().lives_a_little()
    answer = the_same_bytes(
        [two.send(key, operation.method, operation.target()) for key in (None, two.theirs, two.mine, "rf_wrong")]
    )
    assert answer.status == 200
    assert SECRET not in answer.text


ROWS: Mapping[str, Callable[[Operation], None]] = {
    "submit_jobs": submits,
    "list_jobs": lists_with_cursors,
    "show_job": by_id({}, {"suffix": "?wait=5"}, {"if_none_match": "*"}, {"if_none_match": '"1"'}),
    "cancel_job": by_id({}, {"body": "{}"}, {"body": "not JSON"}),
    "redrive_job": by_id({}, {"body": "{}"}, {"body": '{"payload":1}'}),
    "show_queues": shows_what_is_everybodys,
    "show_queue": shows_what_is_everybodys,
    "change_queue": is_for_admins,
    "show_quarantine": lists("", "?limit=100"),
    "show_openapi": is_public,
    "show_health": is_public,
}


def test_every_operation_has_its_row() -> None:
    assert set(ROWS) == set(OPERATIONS)


@pytest.mark.parametrize("name", ROWS)
def test_c37_another_tenants_are_as_if_they_had_never_been(name: str) -> None:
    ROWS[name](OPERATIONS[name])


# --- who one is --------------------------------------------------------------------------------------------------------


@pytest.fixture
def two() -> Two:
    return Two().lives_a_little()


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if operation.needs_a_key])
def test_c37_only_the_key_says_whose_a_request_is(two: Two, name: str) -> None:
    """Not a header, nor the query, nor another Authorization beside it."""
    operation = OPERATIONS[name]
    body = BODY if name == "submit_jobs" else None
    headers = {f"x_{named}": "theirs" for named in ("tenant", "tenant_id", "ringfence_tenant", "forwarded_user", "api_tenant")}
    plain, dressed = two.looks(operation, "", body), two.looks(operation, "", body, **headers)
    assert dressed.status == plain.status
    assert name == "submit_jobs" or dressed == plain
    if name == "submit_jobs":
        assert two.api.system.job(dressed.document["job_id"]).tenant == "mine"
    both = two.send(None, operation.method, operation.target(), body, authorization=f"Bearer {two.mine}, Bearer {two.theirs}")
    assert both.status == 401
    in_the_query = two.send(None, operation.method, f"{operation.target()}?api_key={two.mine}&authorization={two.mine}", body)
    assert in_the_query.status == 401


@pytest.mark.parametrize("name", ["list_jobs", "show_job", "show_quarantine"])
def test_a_tenant_in_the_query_is_refused(two: Two, name: str) -> None:
    answer = two.looks(OPERATIONS[name], "?tenant=theirs")
    assert (answer.status, answer.kind) == (400, "invalid-query")


# --- what a client may not set ---------------------------------------------------------------------------------------------

NOT_THE_CLIENTS: Mapping[str, Any] = {
    "job_id": UNKNOWN_ID,
    "token": 7,
    "attempts": 0,
    "state": "succeeded",
    "tenant": "theirs",
    "attempt_id": "x",
    "write_id": "x",
    "version": 1,
    "worker": "x",
    "lease_until": 1,
    "created_at": 1,
    "result": {},
    "error": "x",
    "checkpoint": {},
    "history": [],
    "expires_at": 1,
    "registered": False,
    "payload_sha256": "0" * 64,
    "cancel_requested": False,
    "due_id": "x",
    "ticket_id": "x",
    "callback_url": "http://169.254.169.254/",
    "webhook": "http://127.0.0.1/",
}
"""What the ledger decides; and where to call back to, which Ringfence does not offer: it makes no request that a client's
data leads it to, so there is none to forge."""


def bodies_with(field: str) -> Iterator[tuple[str, str, str]]:
    """Operation, body with the field, and the pointer that a refusal names; for every operation that takes a body."""
    value = NOT_THE_CLIENTS[field]
    yield "submit_jobs", json.dumps({"name": "echo", field: value}), f"/{field}"
    yield "submit_jobs", json.dumps({"jobs": [{"name": "echo"}, {"name": "echo", field: value}]}), f"/jobs/1/{field}"
    yield "submit_jobs", json.dumps({"jobs": [{"name": "echo"}], field: value}), f"/{field}"
    yield "redrive_job", json.dumps({field: value}), f"/{field}"
    yield "change_queue", json.dumps({field: value}), f"/{field}"


@pytest.mark.parametrize("field", NOT_THE_CLIENTS)
def test_what_only_the_ledger_decides_is_refused_wherever_it_is_sent(api: MemoryApi, field: str) -> None:
    key = api.key()
    assert {name for name, _, _ in bodies_with(field)} == {name for name, each in OPERATIONS.items() if each.takes_a_body}
    for name, body, pointer in bodies_with(field):
        operation = OPERATIONS[name]
        answer = api.request(operation.method, operation.target(), body, key)
        assert (answer.status, answer.kind, answer.document["pointer"]) == (422, "invalid-request", pointer)
    assert api.system.memory_ledger.all_jobs() == []
    assert not api.system.memory_log.read()
