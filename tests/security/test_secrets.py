"""Canaries: a secret in every place where a client or a job can put one, looked for wherever words come out.

Each sink names what it may show; whatever it does not name, it must not.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ringfence import App, Context, Dead, Retry
from ringfence.aws.telemetry import PowertoolsTelemetry
from ringfence.cli.main import main
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import LogEntry
from ringfence.reconcile import Reconciler
from ringfence.replay import Replayer
from ringfence.runtime import Runtime
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.memory_api import MemoryApi, served
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket, decode_ticket, encode_ticket

from .buckets import failed_batch, failed_batches

CANARIES: Mapping[str, str] = {
    place: f"canary{place.replace('_', '')}7f3a"
    for place in (
        "payload",
        "payload_key",
        "result",
        "error",
        "checkpoint",
        "effect",
        "ordering_key",
        "idempotency_key",
        "wrong_api_key",
        "header",
        "query",
        "record",
        "ticket",
        "fault",
    )
}
"""Where each is put. An API key in use is looked for as well."""


def jobs() -> App:
    app = App()

    @app.job("succeed")
    def succeed(ctx: Context, n: str = "") -> dict[str, str]:
        ctx.checkpoint({"at": CANARIES["checkpoint"]})
        ctx.effects.put("Users", {"email": CANARIES["effect"]}, unless_exists=True)
        return {"said": CANARIES["result"]}

    @app.job("raise", max_attempts=2)
    def raise_(ctx: Context, n: str = "", a: str = "") -> None:
        try:
            raise ValueError(CANARIES["error"], n, a)
        except ValueError as cause:
            raise RuntimeError(f"{CANARIES['error']} {n} {a}") from cause

    @app.job("retry", max_attempts=2)
    def retry(ctx: Context, n: str = "") -> None:
        raise Retry(CANARIES["error"], after_seconds=1000)

    @app.job("die")
    def die(ctx: Context, n: str = "") -> None:
        raise Dead(CANARIES["error"])

    @app.job("refused")
    def refused(ctx: Context, n: str = "") -> None:
        ctx.effects.put("Users", {"email": CANARIES["effect"]}, unless_exists=True)

    @app.job("badly")
    def badly(ctx: Context, n: str = "") -> object:
        return {CANARIES["result"]: object()}

    @app.job("typed")
    def typed(ctx: Context, n: int) -> None:
        raise AssertionError("not reached: its payload does not fit")

    return app


class Telling(MemoryTelemetry):
    """Tells as in production, and raises where a field of `NEVER_TOLD` is told."""

    def __init__(self) -> None:
        super().__init__()
        self._production = PowertoolsTelemetry("canaries", level="DEBUG")

    def event(self, name: str, **fields: Any) -> None:
        super().event(name, **fields)
        self._production.event(name, **fields)


@dataclass
class Life:
    """A system in which everything was done that can go well or badly with a secret in it."""

    api: MemoryApi
    key: str
    pushed: list[str]
    """The body of every message that was put into a queue, which is what SQS moves to the last resort."""
    answers: list[str] = field(default_factory=list)

    def asks(self, method: str, target: str, body: str | None = None, **headers: str) -> Any:
        answer = self.api.request(method, target, body, self.key, x_secret=CANARIES["header"], **headers)
        self.answers.append(f"{answer.headers} {answer.text}")
        return answer

    def goes_on(self) -> Life:
        self.submits()
        self.submits_what_is_pushed_again()
        self.sends_what_is_refused()
        self.meets_poison()
        self.meets_faults()
        return self

    def submits(self) -> None:
        system = self.api.system
        for number, name in enumerate(("succeed", "raise", "retry", "die", "refused", "badly", "typed", "unknown")):
            payload = {"n": CANARIES["payload"], **({CANARIES["payload_key"]: 1} if name == "typed" else {})}
            document = {"name": name, "payload": payload, "ordering_key": CANARIES["ordering_key"], "max_attempts": 2}
            headers = {"idempotency_key": CANARIES["idempotency_key"] + str(number)}
            for _ in range(2):
                assert self.asks("POST", "/v1/jobs", json.dumps(document), **headers).status == 202
            other = {**document, "payload": [CANARIES["payload"]]}
            assert self.asks("POST", "/v1/jobs", json.dumps(other), **headers).status == 422
        for _ in range(6):
            system.run_relay()
            while system.run_worker():
                pass
            system.clock.sleep(2_000)
            system.timers.run()
        states = [job["state"] for job in self.asks("GET", "/v1/jobs?limit=100").document["jobs"]]
        assert sorted(states) == ["dead"] * 7 + ["succeeded"]

    def submits_what_is_pushed_again(self) -> None:
        """By a retry, whose job rides in its ticket, and by timers, from the last resort."""
        system = self.api.system
        payload = {"n": CANARIES["payload"]}
        for more in ({"guarantee": "at-least-once"}, {"queue": "priority"}):
            document = {"name": "raise", "payload": payload, "max_attempts": 2, **more}
            assert self.asks("POST", "/v1/jobs", json.dumps(document)).status == 202
        system.run_relay()
        system.run_worker()
        (body,) = system.memory_queues["priority"].bodies()
        system.last_resort.put(body)
        before = len(self.pushed)
        assert system.timers.run()["drained"] == 1
        assert len(self.pushed) > before
        for _ in range(3):
            system.clock.sleep(2_000)
            while system.run_worker() or system.run_worker(queue="priority"):
                pass

    def sends_what_is_refused(self) -> None:
        secret = CANARIES["payload"]
        for body in (
            f'{{"name":"a","payload":"{secret}"',
            f'{{"name":"a","payload":["{secret}",NaN]}}',
            f'{{"name":"a","max_attempts":"{secret}"}}',
            f'{{"name":"a","run_at":"{secret}"}}',
            f'{{"name":"a","delay_seconds":"{secret}","idempotency_key":"{CANARIES["idempotency_key"]}\\n"}}',
            f'{{"name":"a","ordering_key":"{CANARIES["ordering_key"]}\\n"}}',
        ):
            assert self.asks("POST", "/v1/jobs", body).status in (400, 422)
        for target in (f"/v1/jobs?cursor={CANARIES['query']}", f"/v1/jobs?wait={CANARIES['query']}"):
            assert self.asks("GET", target).status == 400
        for wrong in (f"Bearer rf_{CANARIES['wrong_api_key']:A<43}", f"Basic {CANARIES['wrong_api_key']}"):
            answer = self.api.request("GET", "/v1/jobs", authorization=wrong)
            self.answers.append(answer.text)
            assert answer.status == 401

    def meets_poison(self) -> None:
        system, secret = self.api.system, CANARIES["record"]
        job = {"job_id": "a" * 26, "tenant": secret, "queue": "default", "name": secret, "payload": secret}
        for data in (
            f"{secret}",
            f'{{"v":1,"jobs":[{{"job_id":1,"{secret}":"{secret}"}}]}}',
            f'{{"v":99,"jobs":[],"{secret}":1}}',
            json.dumps({"v": 1, "jobs": [{**job, "payload_sha256": secret, "created_at": 1, "max_attempts": 1}]}),
        ):
            system.memory_log.append([LogEntry(data.encode(), "p")])
        system.run_relay()
        secret = CANARIES["ticket"]
        carried = Ticket(
            ticket_id="t",
            job_id="c" * 26,
            tenant="t",
            name="raise",
            payload=f'{{"a":"{secret}"}}',
            max_attempts=1,
            created_at=1,
        )
        for body in (secret, f'{{"v":1,"job_id":5,"x":"{secret}"}}', f'{{"ticket_id":"{secret}"', encode_ticket(carried)):
            system.memory_queues["default"].put(body)
            system.last_resort.put(body)
        while system.run_worker():
            pass
        system.timers.run()
        assert len(system.quarantine.items(100)) >= 7

    def meets_faults(self) -> None:
        """Stores that are out of reach, and a mistake of our own whose message quotes what it met."""
        body = json.dumps({"name": "succeed", "payload": CANARIES["payload"]})
        ledger = self.api.system.memory_ledger
        self.api.system.ledger = Faulty(ledger, [unavailable("register")])
        self.api.system.build()
        assert self.asks("POST", "/v1/jobs", body, idempotency_key=CANARIES["idempotency_key"] + "x").status == 503

        def breaks(*_: Any) -> None:
            raise ZeroDivisionError(CANARIES["fault"])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(self.api.system.gateway), "submit", breaks, raising=True)
            assert self.asks("POST", "/v1/jobs", body).status == 500
        assert self.api.system.telemetry.named("request_failed")[-1]["error"] == "ZeroDivisionError"


def noting(pushed: list[str]) -> Callable[[str, Any], Any]:
    def wrap(name: str, port: Any) -> Any:
        if name.startswith("queue:"):
            push = port.push

            def note(tickets: Sequence[Ticket], *delay: Any) -> Any:
                pushed.extend(map(encode_ticket, tickets))
                return push(tickets, *delay)

            port.push = note
        return port

    return wrap


@pytest.fixture(scope="module")
def lived() -> tuple[Life, str]:
    """The system, and all that its processes have written: events, metrics, and whatever else they print."""
    with pytest.MonkeyPatch.context() as patch:
        written = io.StringIO()
        patch.setattr(sys, "stdout", written)
        patch.setattr(sys, "stderr", written)
        everything = logging.StreamHandler(written)
        root = logging.getLogger()
        before = root.level
        root.addHandler(everything)
        root.setLevel(logging.DEBUG)
        try:
            pushed: list[str] = []
            system = MemorySystem(jobs(), tables={"Users": ("email",)}, wrap=noting(pushed))
            system.telemetry = Telling()
            system.build()
            api = MemoryApi(system)
            life = Life(api, api.key("mine"), pushed).goes_on()
        finally:
            root.removeHandler(everything)
            root.setLevel(before)
    return life, written.getvalue()


def found_in(text: str, life: Life) -> set[str]:
    """Which canaries a text holds, as they are or as JSON would write them."""
    secrets = {**CANARIES, "api_key": life.key[3:]}
    return {place for place, secret in secrets.items() if secret in text}


def test_the_life_was_full(lived: tuple[Life, str]) -> None:
    """Otherwise nothing would be proven."""
    _, written = lived
    told = {json.loads(line)["event"] for line in written.splitlines() if line.startswith("{")}
    assert told >= {
        *("job_accepted", "job_repeated", "job_succeeded", "job_retried", "job_dead", "request_answered", "request_failed"),
        *("record_quarantined", "ticket_quarantined"),
    }
    assert '"_aws"' in written, "metrics are among it"


def test_c42_logs_and_metrics_hold_no_secret(lived: tuple[Life, str]) -> None:
    life, written = lived
    assert found_in(written, life) == set()


def test_answers_give_back_what_is_the_tenants_own_and_no_key(lived: tuple[Life, str]) -> None:
    life, _ = lived
    assert found_in("".join(life.answers), life) <= {"error", "effect", "payload", "payload_key", "query"}


ITS_USERS = {"error", "effect", "payload", "payload_key"}
"""What a client has submitted, or a job of his has said."""

COMMANDS: Mapping[str, set[str]] = {
    "list --limit 1000": ITS_USERS,
    "list --state dead": ITS_USERS,
    "queues": set(),
    "queues default --rate 5/s": set(),
    "quarantine": set(),
    "keys list --table T": set(),
    "keys create --table T": set(),
    "keys revoke K --table T": set(),
    "status JOB": {"payload", "result"},
    "wait JOB": set(),
    "cancel JOB": set(),
    "redrive JOB": set(),
    "submit succeed": set(),
    "submit succeed --at 2030-01-01T00:00:00Z": set(),
    "reconcile --older-than 0s --table T": set(),
    "replay --bucket B --stream S": set(),
    "redrive --dead --limit 1": ITS_USERS,
}
"""Command → the canaries that it may show."""

BESIDE = {
    "worker": "makes processes: tests/integration/pipeline/test_guarded.py runs one, on a Redis with a password",
    "dev": "tells of this machine alone; what its functions write is searched there, too",
    "demo": "has jobs of its own, and asks for no key",
}
"""Commands that are not among them, and why."""


def test_every_command_is_looked_at() -> None:
    def leaves(group: click.Group, *above: str) -> Iterator[str]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from leaves(command, *above, name)
            else:
                yield " ".join([*above, name])

    every = set(leaves(main))
    looked_at = {leaf for line in COMMANDS for leaf in every if f"{line} ".startswith(f"{leaf} ")}
    assert looked_at | BESIDE.keys() == every
    assert not looked_at & BESIDE.keys()


def over(life: Life, patch: pytest.MonkeyPatch) -> None:
    """What the commands reach without the API."""
    system = life.api.system
    batches = failed_batches(
        f"{CANARIES['record']}".encode(),
        failed_batch(CANARIES["record"].encode(), f'{{"v":1,"jobs":["{CANARIES["record"]}"]}}'.encode()),
        failed_batch()[:-1] + f', "{CANARIES["record"]}": 1'.encode(),
    )

    def reconciler(runtime: Runtime) -> Reconciler:
        services = dataclasses.replace(system.services, telemetry=runtime.telemetry)
        return Reconciler(services, system.queues, system.pacer, system.sweeps)

    patch.setattr(Runtime, "keys", life.api.keys)
    patch.setattr(Runtime, "reconciler", property(reconciler))
    patch.setattr(Runtime, "replayer", Replayer(batches, system.memory_log, system.clock, random.Random(1)))
    patch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    patch.setenv("RINGFENCE_QUEUES", json.dumps({name: f"sqs://{name}" for name in system.queues}))


@pytest.mark.parametrize("more", ["", "--json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_c42_a_command_shows_no_more_than_is_its_users(
    lived: tuple[Life, str], command: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, _ = lived
    (succeeded,) = [job.job_id for job in life.api.system.memory_ledger.all_jobs() if job.name == "succeed" and job.result]
    over(life, monkeypatch)
    allowed = COMMANDS[command]
    if more and command.split()[0] in ("wait", "cancel"):
        allowed = COMMANDS["status JOB"]
    with served(life.api.answer) as url:
        arguments = [*command.replace("JOB", succeeded).split(), *([more] if more else [])]
        result = CliRunner().invoke(main, arguments, env={"RINGFENCE_URL": url, "RINGFENCE_API_KEY": life.key})
    assert result.output
    assert result.exit_code != 2, result.output
    assert found_in(result.output, life) <= allowed
    if allowed and "status" in command:
        assert found_in(result.output, life) == allowed, "and its user does see it"


def test_c42_the_quarantine_tells_why_without_a_word_of_what(lived: tuple[Life, str]) -> None:
    """Its bytes stay in the table; its reasons go to logs and to whoever operates the deployment."""
    life, _ = lived
    items = life.api.system.quarantine.items(100)
    assert found_in("".join(repr(item.data) for item in items), life) >= {"record", "ticket"}
    assert found_in("".join(f"{item.reason} {item.source} {item.position} {item.job_id}" for item in items), life) == set()


def test_c42_a_message_names_its_job_and_holds_nothing_of_it_unless_the_job_rides_in_it(lived: tuple[Life, str]) -> None:
    """So the last resort, where operators look, holds no payload of a job that has a row; and no error or key of any."""
    life, _ = lived
    tickets = [(decode_ticket(body), body) for body in life.pushed]
    assert found_in("".join(body for ticket, body in tickets if ticket.payload is None), life) == set()
    assert found_in("".join(body for ticket, body in tickets if ticket.payload is not None), life) <= {"payload", "ticket"}
    assert len({ticket.payload is None for ticket, _ in tickets}) == 2, "there were both"


def test_the_ledger_keeps_neither_a_key_nor_its_secret(lived: tuple[Life, str]) -> None:
    """Idempotency keys become the job's id, ordering keys a partition of the log, API keys a hash."""
    life, _ = lived
    kept = f"{life.api.system.memory_ledger.all_jobs()} {life.api.keys.all()} {life.api.system.memory_log.read()}"
    assert found_in(kept, life) & {"api_key", "idempotency_key", "ordering_key", "wrong_api_key", "header"} == set()
