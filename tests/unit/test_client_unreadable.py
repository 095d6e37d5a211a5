"""A 2xx that is no answer of the API's says nothing of what was done: the same is sent again, by the same key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ringfence import App
from ringfence.client import Client, JobRequest, Submitted
from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock
from ringfence.testing.memory_api import Event, MemoryApi, served
from ringfence.testing.system import MemorySystem

UNREADABLE = [
    pytest.param("null", "application/json", id="null"),
    pytest.param('{"jobs": null}', "application/json", id="another document"),
    pytest.param("<html>Sign in to the hotel's network</html>", "text/html; charset=utf-8", id="a page"),
    pytest.param("", "application/json", id="nothing"),
]

CALLS: dict[str, Callable[[Client, str], Any]] = {
    "submit": lambda client, job_id: client.submit("job"),
    "submit_many": lambda client, job_id: client.submit_many([JobRequest(name="job"), JobRequest(name="job")]),
    "get": lambda client, job_id: client.get(job_id),
    "wait": lambda client, job_id: client.wait(client.cancel(job_id).job_id),
    "cancel": lambda client, job_id: client.cancel(job_id),
    "list": lambda client, job_id: list(client.list()),
    "queues": lambda client, job_id: client.queues(),
    "queue": lambda client, job_id: client.queue("default"),
    "quarantine": lambda client, job_id: client.quarantine(),
    "set_queue": lambda client, job_id: client.set_queue("default", paused=False),
}


class Muddled:
    """The real API, whose next ``times`` answers are lost, and something else is told instead."""

    def __init__(self) -> None:
        self.api = MemoryApi(MemorySystem(App()))
        self.times, self.body, self.content_type = 0, "", ""
        self.asked: list[str | None] = []

    def answer(self, event: Event) -> Event:
        self.asked.append(event["body"])
        answer = self.api.answer(event)
        if self.times:
            self.times -= 1
            return {"statusCode": 200, "headers": {"content-type": self.content_type}, "body": self.body}
        return answer

    @contextmanager
    def client(self) -> Iterator[Client]:
        with served(self.answer) as url, Client(url, self.api.key("admin"), clock=ManualClock()) as client:
            yield client


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("body", "content_type"), UNREADABLE)
def test_what_cannot_be_read_is_asked_for_again(call: str, body: str, content_type: str) -> None:
    muddled = Muddled()
    with muddled.client() as client:
        job_id = client.submit("job").job_id
        muddled.asked.clear()
        muddled.times, muddled.body, muddled.content_type = 1, body, content_type
        CALLS[call](client, job_id)
    assert muddled.asked[0] == muddled.asked[1]


def test_what_was_accepted_behind_it_is_accepted_once() -> None:
    muddled = Muddled()
    with muddled.client() as client:
        muddled.times, muddled.body, muddled.content_type = 1, "null", "application/json"
        single = client.submit("job")
        muddled.times = 1
        outcomes = client.submit_many([JobRequest(name="job"), JobRequest(name="job")])
        jobs = list(client.list())
    submitted = [single, *(outcome for outcome in outcomes if isinstance(outcome, Submitted))]
    assert {job.job_id for job in jobs} == {each.job_id for each in submitted}
    assert (len(jobs), all(each.repeated for each in submitted)) == (3, True)


def test_when_it_never_can_be_read_the_error_shows_who_answered_and_with_what() -> None:
    muddled = Muddled()
    with muddled.client() as client:
        muddled.times, muddled.body, muddled.content_type = 1_000, "<html></html>", "text/html; charset=utf-8"
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+ answered 200 \(text/html\), but not as the API does: "):
            client.submit("job")
        (outcome,) = client.submit_many([JobRequest(name="job")])
    assert isinstance(outcome, Unavailable)
    assert json.dumps(str(outcome)).count("text/html") == 1
