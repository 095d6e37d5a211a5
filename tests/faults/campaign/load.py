"""The clients: they submit at a steady pace, repeat until they are told, and change their minds now and then."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.client import Client
from ringfence.client.jobs import JobRequest, Submitted
from ringfence.errors import Rejected, RingfenceError
from ringfence.job import Guarantee, State

from .books import Asked, Books, Kind
from .plan import Plan

CLIENTS = 4

MOST_OUTSTANDING = 80
"""Accepted and not ended; above it the clients wait. Behind a long queue a job whose lease has ended would be taken over so
late that its frozen owner is back by then, and no late write would ever be tried."""

BATCH = 8
"""Jobs in one request, at most."""

MAX_ATTEMPTS = 100
"""Of jobs that must not die: faults cost attempts."""

PILL_ATTEMPTS = 2

HAUL_STEPS = 280
"""Some 60 seconds: more than an invocation has, less what it keeps for its end."""

PATIENCE_SECONDS = 5.0
"""How long a client sends one request again before it turns to others; it comes back to this one."""

REQUEST_SECONDS = 4.0
KEYLESS_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A job that somebody wants."""

    key: str
    kind: Kind
    request: JobRequest


class Load:
    """``outstanding()`` tells how many accepted jobs have not ended. `start` and `finish` are for one thread."""

    def __init__(self, api_url: str, queues: Sequence[str], books: Books, plan: Plan, outstanding: Callable[[], int]) -> None:
        self._api_url, self._queues, self._books, self._plan = api_url, queues, books, plan
        self._outstanding = outstanding
        self._over = threading.Event()
        self._told = threading.Event()
        self._lock = threading.Lock()
        self._next_at = time.monotonic()
        self._factor = 1.0
        self._made = 0
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def start(self) -> None:
        for number in range(CLIENTS):
            thread = threading.Thread(target=self._run, args=(number,), name=f"client-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def burst(self, factor: float) -> None:
        """From now on so many times the pace, regardless of what is outstanding; 1 is the usual."""
        with self._lock:
            self._factor, self._next_at = factor, time.monotonic()

    def finish(self, within_seconds: float) -> int:
        """Ask for nothing new, and wait until everything that was asked for under a key has its answer. Returns how many
        clients still have none."""
        self._over.set()
        deadline = time.monotonic() + within_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._told.set()
        return sum(thread.is_alive() for thread in self._threads)

    # --- one client --------------------------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        rng = random.Random(f"{self._plan.seed}-{number}")
        untold: list[Wish] = []
        try:
            with Client(self._api_url, timeout_seconds=REQUEST_SECONDS, retry_seconds=PATIENCE_SECONDS) as client:
                while not self._told.is_set() and (untold or not self._over.is_set()):
                    untold = self._submit(client, [*untold, *self._wishes(rng, untold)], rng, again=bool(untold))
        except BaseException as fault:  # noqa: BLE001 - raised again where the run is judged
            self.failures.append(fault)

    def _wishes(self, rng: random.Random, untold: Sequence[Wish]) -> list[Wish]:
        """The next batch, when it is time for it; nothing when there is something to send again."""
        if untold:
            self._over.wait(0.2)
            return []
        count = rng.randint(1, BATCH)
        with self._lock:
            bursting = self._factor > 1
            start_at = max(self._next_at, time.monotonic())
            self._next_at = start_at + count / (self._plan.rate * self._factor)
            first, self._made = self._made, self._made + count
        while (not bursting and self._outstanding() > MOST_OUTSTANDING) or time.monotonic() < start_at:
            if self._over.wait(0.05):
                return []
        return [self._wish(f"{self._plan.seed}-{first + index}", rng) for index in range(count)]

    def _wish(self, key: str, rng: random.Random) -> Wish:
        queue = rng.choice(self._queues)
        kind, payload, options = _drawn(rng, BRIEF if self._plan.brief else ALL, 2.5 if self._plan.brief else 6.0)
        if kind is not Kind.CARRY:
            options["idempotency_key"] = key
        request = JobRequest(name=str(kind), payload={"key": key, **payload}, queue=queue, **options)
        return Wish(key, kind, request)

    def _submit(self, client: Client, wishes: list[Wish], rng: random.Random, *, again: bool) -> list[Wish]:
        """Returns those that have to be sent again: under their keys, for they may have been accepted."""
        if not wishes:
            return []
        if not again and len(wishes) == 1 and wishes[0].kind is Kind.TALLY and rng.random() < 0.5:
            self._submit_without_key(wishes[0])
            return []
        outcomes = client.submit_many([wish.request for wish in wishes])
        return [wish for wish, outcome in zip(wishes, outcomes, strict=True) if not self._answered(client, wish, outcome, rng)]

    def _answered(self, client: Client, wish: Wish, outcome: Submitted | RingfenceError, rng: random.Random) -> bool:
        if isinstance(outcome, Submitted):
            self._books.promised(wish.key, wish.kind, wish.request.queue, outcome.job_id)
            self._change_mind(client, wish, outcome, rng)
            return True
        self._books.refused(type(outcome).__name__)
        if isinstance(outcome, Rejected) and outcome.status is not None and 400 <= outcome.status < 500:
            self._books.contradicted(f"{wish.key} is a valid request and was refused: {outcome.status} {outcome}")
            return True
        if wish.kind is Kind.CARRY:
            self._books.unanswered.add(wish.key)  # sent again it would be another job
            return True
        return False

    def _change_mind(self, client: Client, wish: Wish, submitted: Submitted, rng: random.Random) -> None:
        """Ask for the same again, or for something else under the same key, or cancel; or look how it stands."""
        drawn = rng.random()
        if wish.kind is not Kind.TALLY or drawn > 0.1:
            return
        promise = self._books.promises[wish.key]
        try:
            if drawn < 0.02:
                self._answered(client, wish, client.submit_many([wish.request])[0], random.Random(0))
            elif drawn < 0.04:
                self._other_under_same_key(client, wish)
            elif drawn < 0.06:
                promise.cancel = Asked.PERHAPS
                if client.cancel(submitted.job_id).state is State.CANCELLED:
                    promise.cancel = Asked.DONE
            else:
                earlier = rng.choice(self._books.recent)
                state = client.get(earlier.job_id).state
                earlier.seen = state if state.terminal else earlier.seen
        except Rejected as refusal:
            if refusal.status != 409:  # it has ended
                self._books.contradicted(f"{wish.key} cannot be cancelled: {refusal.status} {refusal}")
        except RingfenceError as fault:
            self._books.refused(type(fault).__name__)

    def _other_under_same_key(self, client: Client, wish: Wish) -> None:
        other = JobRequest(
            name="tally", payload={"key": "another"}, queue=wish.request.queue, idempotency_key=wish.request.idempotency_key
        )
        outcome = client.submit_many([other])[0]
        if isinstance(outcome, Submitted):
            self._books.contradicted(f"{wish.key} was accepted again for something else")

    def _submit_without_key(self, wish: Wish) -> None:
        """Once and never again: whoever gets no answer does not know."""
        request = {"name": wish.request.name, "payload": wish.request.payload, "queue": wish.request.queue}
        body = json.dumps({**request, "max_attempts": MAX_ATTEMPTS}).encode()
        self._books.unanswered.add(wish.key)
        asked = urllib.request.Request(f"{self._api_url}/v1/jobs", body, {"Content-Type": "application/json"})
        try:
            with _direct.open(asked, timeout=KEYLESS_SECONDS) as answer:
                job_id: Any = json.load(answer)["job_id"]
        except (OSError, ValueError) as fault:
            status = fault.code if isinstance(fault, urllib.error.HTTPError) else type(fault).__name__
            self._books.refused(f"keyless {status}")
        else:
            self._books.promised(wish.key, wish.kind, wish.request.queue, str(job_id))


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


ALL = {
    "short": 60.0, "long": 5.0, "flaky": 8.0, "delayed": 6.0, "steps": 4.0, "haul": 0.5, "doomed": 4.0, "pill": 0.3,
    "carry": 12.0,
}  # fmt: skip
"""What is asked for, and how much of it."""

BRIEF = {kind: weight for kind, weight in ALL.items() if kind not in ("haul", "pill")}


def _drawn(
    rng: random.Random, kinds: Mapping[str, float], longest_seconds: float
) -> tuple[Kind, dict[str, Any], dict[str, Any]]:
    """A kind, its payload beside the key, and the options of its submission."""
    options: dict[str, Any] = {"max_attempts": MAX_ATTEMPTS}
    match rng.choices(list(kinds), list(kinds.values()))[0]:
        case "short":
            return Kind.TALLY, {"seconds": round(rng.uniform(0, 0.05), 3)}, options
        case "long":
            return Kind.TALLY, {"seconds": round(rng.uniform(0.5, longest_seconds), 3), "blunt": rng.random() < 0.5}, options
        case "flaky":
            return Kind.TALLY, {"fails": rng.randint(1, 2)}, options
        case "delayed":
            return Kind.TALLY, {}, {**options, "delay_seconds": round(rng.uniform(0.5, longest_seconds), 1)}
        case "steps":
            return Kind.STEPS, {"steps": rng.randint(2, round(longest_seconds))}, options
        case "haul":
            return Kind.HAUL, {"steps": HAUL_STEPS}, options
        case "doomed":
            return Kind.DOOMED, {}, options
        case "pill":
            return Kind.PILL, {}, {"max_attempts": PILL_ATTEMPTS}
        case _:
            return Kind.CARRY, {}, {**options, "guarantee": Guarantee.AT_LEAST_ONCE}
