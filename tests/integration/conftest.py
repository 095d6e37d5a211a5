"""`ringfence dev` on a small application with one event source of each kind (``dev_app``), on each emulator."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ringfence.local.dev import Dev
from ringfence.local.pool import Replaced
from ringfence.testing.emulator_kinds import KINDS, USUAL, startable

ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).parent / "dev_app" / "template.yaml"


class App:
    """The application, what was asked of it, and the history that its functions have written."""

    def __init__(self, dev: Dev, trace: Path, replaced: SimpleQueue[Replaced]) -> None:
        self.dev, self.trace, self.replaced = dev, trace, replaced
        self.environment = dev.environment()
        self.sqs, self.kinesis = dev.endpoint.client("sqs"), dev.endpoint.client("kinesis")
        self.queue_url: str = json.loads(self.environment["QUEUES"])["default"]

    def name(self) -> str:
        """An id that no other test uses."""
        return uuid.uuid4().hex[:8]

    def send(self, *bodies: Mapping[str, Any]) -> None:
        """Put messages into the queue, at once."""
        entries = [{"Id": str(n), "MessageBody": json.dumps(body)} for n, body in enumerate(bodies)]
        assert not self.sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries).get("Failed")

    def put(self, *bodies: Mapping[str, Any], key: str = "k") -> None:
        """Append records to the stream, at once."""
        records = [{"Data": json.dumps(body).encode(), "PartitionKey": key} for body in bodies]
        assert not self.kinesis.put_records(StreamName=self.environment["STREAM"], Records=records)["FailedRecordCount"]

    def history(self, how: str, *ids: str) -> list[dict[str, Any]]:
        """What functions were given, in their order; of these ids only."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        found = [json.loads(line) for line in lines]
        return [line for line in found if line["how"] == how and (not ids or line["id"] in ids)]

    def given(self, how: str, ids: Sequence[str], times: Sequence[int]) -> list[dict[str, Any]]:
        """The history of ``ids``, once each of them was given as often as ``times`` says."""

        def complete() -> list[dict[str, Any]] | None:
            history = self.history(how, *ids)
            counts = [sum(line["id"] == one for line in history) for one in ids]
            return history if all(count >= time for count, time in zip(counts, times, strict=True)) else None

        return eventually(complete, f"{how} {ids} {times}; so far {self.history(how, *ids)}")

    def in_queue(self) -> int:
        """Messages that were not deleted, visible or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    def connect(self) -> HTTPConnection:
        return HTTPConnection(self.dev.api_url.removeprefix("http://"), timeout=60)

    def request(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Status and body of one request."""
        connection = self.connect()
        try:
            connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, target: str) -> Any:
        """The JSON of a GET, which must succeed."""
        status, body = self.request("GET", target)
        assert status == 200, body
        return json.loads(body)


def eventually(look: Callable[[], Any], what: str, within_seconds: float = 40.0) -> Any:
    """What ``look`` finds once it is true: other processes tell of themselves only to those who look."""
    deadline = time.monotonic() + within_seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came to be: {what}"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    """A zombie is not: it only waits for its parent to look."""
    try:
        os.kill(pid, 0)
        return sys.platform != "linux" or b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture(scope="package", params=KINDS)
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The application, running for as long as tests use it: its start is most of what one would wait for."""
    folder = tmp_path_factory.mktemp("dev")
    replaced: SimpleQueue[Replaced] = SimpleQueue()
    dev = Dev(
        TEMPLATE,
        emulator=startable(request.param),
        run_folder=folder,
        extra_env={"TRACE": str(folder / "trace.jsonl")},
        on_replaced=replaced.put,
    )
    with dev:
        yield App(dev, folder / "trace.jsonl", replaced)


@pytest.fixture(scope="package", params=[USUAL], ids=lambda kind: f"redis beside {kind}")
def redis_dev(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """The whole system, of the template, with its queues on Redis: what takes from them, tests bring along.

    Processes that they kill may leave tickets in ``default``; nobody takes from ``priority`` but the test that pushed there.
    """
    run_folder = tmp_path_factory.mktemp("run")
    # Nothing comes to the worker's function while the queues are on Redis, but the template has it.
    with Dev(
        ROOT / "template.yaml",
        emulator=startable(request.param),
        queues="redis",
        processes={"WorkerFunction": 1},
        run_folder=run_folder,
    ) as running:
        yield running
