"""A system that asks for keys, as a deployment does, with a Redis that asks for a password: its front door, every
file of events/ through its handler, and what it tells of all the secrets that it has seen.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner

from ringfence import Client
from ringfence.cli.main import main
from ringfence.http.auth import SCOPES, new_key
from ringfence.job import Job, State
from ringfence.local.dev import Dev
from ringfence.ports import ApiKey, LogEntry
from ringfence.runtime import Runtime
from ringfence.testing.dev_system import FUNCTIONS
from ringfence.testing.emulator_kinds import USUAL, startable
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.worker_command import RINGFENCE
from ringfence.wire import Ticket

ROOT = Path(__file__).parents[3]
EVENTS = sorted((ROOT / "events").glob("*/*.json"))


REDIS_USER, REDIS_PASSWORD = "canary", "canaryredispassword7f3a"


@pytest.fixture(scope="module")
def dev(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """With a queue of each engine, and every event logged."""
    set_password(redis_server, REDIS_PASSWORD)
    parameters = {
        "LogLevel": "DEBUG",
        "PriorityQueueEngine": "redis",
        "RedisUrl": f"redis://{REDIS_USER}:{REDIS_PASSWORD}@{redis_server.address}",
    }
    with Dev(
        ROOT / "template.yaml",
        emulator=startable(USUAL),
        auth="api-key",
        parameters=parameters,
        processes=dict.fromkeys(FUNCTIONS, 1),  # whose start is most of what this costs
        run_folder=tmp_path_factory.mktemp("run"),
    ) as guarded:
        yield guarded


def set_password(server: RedisServer, password: str) -> None:
    """Whoever is connected with another has to ask for admission again."""
    server.ask("ACL", "SETUSER", REDIS_USER, "reset", "on", f">{password}", "~*", "&*", "+@all")
    server.ask("CLIENT", "KILL", "USER", REDIS_USER)


@pytest.fixture(scope="module")
def outcomes(dev: Dev, here: Runtime) -> dict[str, Any]:
    """What each handler returned for each event, in the order in which a job would cause them."""
    tell_key(here)
    order = ["gateway", "relay", "worker", "timers"]
    returned = {}
    for path in sorted(EVENTS, key=lambda path: (order.index(path.parent.name), path.name)):
        event = path.read_text().replace(":ringfence-default", ":" + here.settings.queues["default"].rpartition("/")[2])
        outcome = dev.invoke(f"{path.parent.name.capitalize()}Function", event.encode())
        assert outcome.error is None, f"{path}: {outcome.told()}"
        returned[f"{path.parent.name}/{path.stem}"] = outcome.value()
    return returned


def tell_key(here: Runtime) -> None:
    """Make the key that the gateway's events carry a key of this system."""
    event = json.loads((ROOT / "events/gateway/submit-one.json").read_text())
    secret = event["headers"]["authorization"].removeprefix("Bearer ")
    key = ApiKey(
        key_id="example",
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        tenant="default",
        scopes=frozenset({"submit"}),
        created_at=here.clock.now(),
    )
    here.keys.add(key)


def test_every_event_is_taken_by_its_handler(outcomes: dict[str, Any]) -> None:
    assert outcomes.keys() == {f"{path.parent.name}/{path.stem}" for path in EVENTS}
    assert len(outcomes) >= 8


def test_the_gateways_events_are_answered_as_their_names_say(outcomes: dict[str, Any]) -> None:
    statuses = {name: answer["statusCode"] for name, answer in outcomes.items() if name.startswith("gateway/")}
    assert statuses == {
        "gateway/submit-one": 202,
        "gateway/submit-many": 202,
        "gateway/submit-at-least-once": 202,
        "gateway/base64-body": 202,
        "gateway/bad-body": 400,
    }


def test_the_relays_poison_is_quarantined_and_nothing_is_read_again(outcomes: dict[str, Any], here: Runtime) -> None:
    assert outcomes["relay/poison-in-the-middle"] == {"batchItemFailures": []}
    assert any(item.source.startswith("log:") for item in here.quarantine.items())


def test_the_workers_redelivery_ends_the_job(outcomes: dict[str, Any], here: Runtime) -> None:
    event = json.loads((ROOT / "events/worker/redelivery.json").read_text())
    job_id = json.loads(event["Records"][0]["body"])["job_id"]
    deadline = time.monotonic() + 30
    # The system's own worker may have been first, and may not have ended it yet.
    while (job := here.ledger.get(job_id)) is None or not job.state.terminal:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (job.state, job.token) == (State.SUCCEEDED, job.attempts)
    assert outcomes["timers/minute"].keys() == {"released", "drained", "renewed"}


@pytest.fixture
def made_key(dev: Dev) -> str:
    made = subprocess.run(
        [Path(sys.executable).parent / "ringfence", "keys", "create", "--json"],
        env={**os.environ, **dev.environment("GatewayFunction")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return str(json.loads(made.stdout)["api_key"])


def status_of(dev: Dev, path: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection(urlsplit(dev.api_url).netloc, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/aaaaaaaaaaaaaaaaaaaaaaaaaa", "/v1/queues", "/v1/quarantine"])
def test_a_request_without_a_key_is_unauthenticated(dev: Dev, path: str) -> None:
    assert status_of(dev, path, {}) == 401
    assert status_of(dev, path, {"Authorization": "Bearer rf_" + "A" * 43}) == 401


@pytest.mark.parametrize("path", ["/v1/health", "/v1/openapi.json"])
def test_health_and_the_api_document_are_for_all(dev: Dev, path: str) -> None:
    assert status_of(dev, path, {}) == 200


def test_a_key_made_on_the_command_line_opens_what_its_scopes_allow(dev: Dev, made_key: str) -> None:
    authorized = {"Authorization": f"Bearer {made_key}"}
    assert status_of(dev, "/v1/jobs", authorized) == 200
    assert status_of(dev, "/v1/quarantine", authorized) == 403


# --- secrets -----------------------------------------------------------------------------------------------------------

CANARIES = {place: f"canary{place}7f3a" for place in ("email", "account", "unfit", "record", "message", "key", "query")}
"""Where each is put, beside the password of Redis and the keys."""


class Life:
    """What goes through a system with all of these in it, well and badly, and what is printed meanwhile."""

    def __init__(self, dev: Dev, here: Runtime, redis_server: RedisServer, key: str, worker_log: Path) -> None:
        self.dev, self.here, self.redis, self.key, self.worker_log = dev, here, redis_server, key, worker_log
        self.client = Client(dev.api_url, api_key=key)
        self.printed: dict[str, str] = {}

    def goes_on(self) -> None:
        with self.client, self.worker():
            self.strangers_write()
            self.wait_ended(self.submitted())
            self.wait_set_aside()
            self.redis_refuses()

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A process for the queue on Redis."""
        environment = {**os.environ, **self.dev.environment("WorkerFunction")}
        command = [RINGFENCE, "worker", "-q", "priority", "--threads", "2"]
        with self.worker_log.open("wb") as log:
            process = subprocess.Popen(command, env=environment, cwd=ROOT / "functions/worker", stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def submitted(self) -> list[str]:
        """To each queue what succeeds, and what dies in every way."""
        return [job_id for queue in self.here.queues for job_id in self.submitted_to(queue)]

    def submitted_to(self, queue: str) -> Iterator[str]:
        wanted: Sequence[tuple[str, Any, dict[str, str]]] = [
            ("signup", {"email": CANARIES["email"], "name": "Ada"}, {"idempotency_key": CANARIES["key"] + queue}),
            ("charge", {"account_id": CANARIES["account"]}, {}),
            ("charge", {"account_id": CANARIES["account"]}, {"guarantee": "at-least-once"}),
            ("signup", {"email": [CANARIES["unfit"]], CANARIES["unfit"]: 1}, {}),
            ("unknown", CANARIES["unfit"], {}),
        ]
        for name, payload, more in wanted:
            yield self.client.submit(name, payload, queue=queue, max_attempts=1, **more).job_id

    def strangers_write(self) -> None:
        """Into the log, into each queue, and into what SQS has given up on."""
        said = CANARIES["message"]
        self.here.log.append([LogEntry(CANARIES["record"].encode(), "p")])
        without_row = Ticket(ticket_id="t", job_id="c" * 26, tenant=said, name="stranger")
        for queue in self.here.queues.values():
            assert queue.push([without_row]) == []
        assert self.here.last_resort is not None
        carried = msgspec.structs.replace(without_row, payload=f'["{said}"]', max_attempts=1, created_at=1)
        assert self.here.last_resort.push([carried]) == []

    def redis_refuses(self) -> None:
        """Its password is another one for a while."""
        set_password(self.redis, f"another{REDIS_PASSWORD}")
        try:
            waiting = self.client.submit("charge", {"account_id": CANARIES["account"]}, queue="priority")
            self.wait_told("push_failed", "queue_unreachable", "redis_call_failed")
            self.asks_by_command()
        finally:
            set_password(self.redis, REDIS_PASSWORD)
        self.wait_ended([waiting.job_id])

    def asks_by_command(self) -> None:
        url = self.here.settings.queues["priority"]
        self.runs("queues --json")
        self.runs("reconcile --older-than 0s --json")
        self.runs("worker -q nope")
        for wrong in (url.replace("redis:", "redid:"), f"{url}?db=x", url.replace(REDIS_PASSWORD, f"{REDIS_PASSWORD}[")):
            self.runs("reconcile --older-than 0s", RINGFENCE_QUEUES=json.dumps({"priority": wrong}))
        self.runs(f"list --queue {CANARIES['query']} --url {self.dev.api_url}")

    def runs(self, command: str, **more: str) -> None:
        environment = {
            **self.dev.environment("GatewayFunction"),
            "RINGFENCE_URL": self.dev.api_url,
            "RINGFENCE_API_KEY": self.key,
        }
        result = CliRunner().invoke(main, command.split(), env={**environment, **more})
        self.printed[f"{command} {more}"] = result.output

    def wait_ended(self, job_ids: Sequence[str]) -> None:
        """One that rides in its ticket has a row then, for it died."""
        self.wait_for(lambda: [job_id for job_id in job_ids if not has_ended(self.here.ledger.get(job_id))])

    def wait_set_aside(self) -> None:
        """What strangers have written."""
        wanted = {"log", *(f"queue:{name}" for name in (*self.here.queues, "last-resort"))}
        self.wait_for(lambda: sorted(wanted - {item.source.partition(":shard")[0] for item in self.here.quarantine.items()}))

    def wait_told(self, *events: str) -> None:
        self.wait_for(lambda: [event for event in events if f'"event":"{event}"' not in self.logged()])

    def wait_for(self, missing: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + 60
        while left := missing():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    def logged(self) -> str:
        return "".join(path.read_text(errors="replace") for path in (*self.dev.logs.glob("*.log"), self.worker_log))


def has_ended(job: Job | None) -> bool:
    return job is not None and job.state.terminal


@pytest.fixture(scope="module")
def lived(
    dev: Dev, here: Runtime, outcomes: dict[str, Any], redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Life:
    secret, key = new_key(here.ids, here.clock, tenant="default", scopes=frozenset(SCOPES))
    here.keys.add(key)
    life = Life(dev, here, redis_server, secret, tmp_path_factory.mktemp("worker") / "worker.log")
    life.goes_on()
    return life


def found_in(text: str, *more: str) -> set[str]:
    return {canary for canary in (REDIS_PASSWORD, "rf_EXAMPLE", *CANARIES.values(), *more) if canary in text}


def test_c42_no_secret_and_no_payload_is_in_any_log(lived: Life, made_key: str) -> None:
    """Of any process; the metrics are among it."""
    status_of(lived.dev, "/v1/jobs", {"Authorization": f"Bearer {made_key}"})
    logged = lived.logged()
    assert lived.dev.environment("WorkerFunction")["POWERTOOLS_LOG_LEVEL"] == "DEBUG"
    assert '"_aws"' in logged
    assert found_in(logged, made_key, lived.key, "ada@example.com") == set()


def test_c42_a_command_that_cannot_reach_redis_says_why_without_its_password(lived: Life) -> None:
    assert all(lived.printed.values())
    assert "WRONGPASS" in "".join(lived.printed.values())
    assert {command: found for command, printed in lived.printed.items() if (found := found_in(printed, lived.key))} == {}


def test_c42_the_quarantine_says_why_without_what(lived: Life) -> None:
    items = lived.here.quarantine.items()
    assert found_in(" ".join(f"{item.reason} {item.source} {item.position}" for item in items)) == set()
