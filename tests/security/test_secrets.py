"""Canaries: a secret in every place where a client or a job can put one, looked for wherever words come out.

Each sink names what it may show; whatever it does not name, it must not.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner

from ringfence import App, Context, Dead, Retry
from ringfence.aws.telemetry import PowertoolsTelemetry
from ringfence.cli.main import main
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import LogEntry
from ringfence.runtime import Runtime
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.memory_api import MemoryApi, served
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket, encode_ticket

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
    answers: list[str] = field(default_factory=list)

    def asks(self, method: str, target: str, body: str | None = None, **headers: str) -> Any:
        answer = self.api.request(method, target, body, self.key, x_secret=CANARIES["header"], **headers)
        self.answers.append(f"{answer.headers} {answer.text}")
        return answer

    def goes_on(self) -> Life:
        self.submits()
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
            system = MemorySystem(jobs(), tables={"Users": ("email",)})
            system.telemetry = Telling()
            system.build()
            api = MemoryApi(system)
            life = Life(api, api.key("mine")).goes_on()
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


COMMANDS: Mapping[str, set[str]] = {
    "list --limit 1000": {"error", "effect", "payload", "payload_key"},
    "list --state dead": {"error", "effect", "payload", "payload_key"},
    "queues": set(),
    "quarantine": set(),
    "keys list --table T": set(),
    "status JOB": {"payload", "result"},
    "wait JOB": set(),
    "cancel JOB": set(),
    "redrive JOB": set(),
    "submit succeed": set(),
}
"""Command → the canaries that it may show: what its user has submitted, or a job of his has said."""


@pytest.mark.parametrize("more", ["", "--json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_c42_a_command_shows_no_more_than_is_its_users(
    lived: tuple[Life, str], command: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, _ = lived
    (succeeded,) = [job.job_id for job in life.api.system.memory_ledger.all_jobs() if job.name == "succeed" and job.result]
    monkeypatch.setattr(Runtime, "keys", life.api.keys)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    allowed = COMMANDS[command]
    if more and command.split()[0] in ("wait", "cancel"):
        allowed = COMMANDS["status JOB"]
    with served(life.api.answer) as url:
        arguments = [*command.replace("JOB", succeeded).split(), *([more] if more else [])]
        result = CliRunner().invoke(main, arguments, env={"RINGFENCE_URL": url, "RINGFENCE_API_KEY": life.key})
    assert found_in(result.output, life) <= allowed
    if allowed and "status" in command:
        assert found_in(result.output, life) == allowed, "and its user does see it"


def test_c42_the_quarantine_tells_why_without_a_word_of_what(lived: tuple[Life, str]) -> None:
    """Its bytes stay in the table; its reasons go to logs and to whoever operates the deployment."""
    life, _ = lived
    items = life.api.system.quarantine.items(100)
    assert found_in("".join(repr(item.data) for item in items), life) >= {"record", "ticket"}
    assert found_in("".join(f"{item.reason} {item.source} {item.position} {item.job_id}" for item in items), life) == set()


def test_the_ledger_keeps_neither_a_key_nor_its_secret(lived: tuple[Life, str]) -> None:
    """Idempotency keys become the job's id, ordering keys a partition of the log, API keys a hash."""
    life, _ = lived
    kept = f"{life.api.system.memory_ledger.all_jobs()} {life.api.keys.all()} {life.api.system.memory_log.read()}"
    assert found_in(kept, life) & {"api_key", "idempotency_key", "ordering_key", "wrong_api_key", "header"} == set()
