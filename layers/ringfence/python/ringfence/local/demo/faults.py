"""The two faults: a worker frozen past its lease and thawed when it is too late, and a worker killed. Both at work on jobs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ringfence.errors import RingfenceError
from ringfence.local.demo.claims import Claim, OpenClaims
from ringfence.local.demo.late_writes import LateWrite, late_writes_in
from ringfence.local.demo.worker_log import Event, WorkerLog
from ringfence.ports import Ledger

LOOK_SECONDS = 0.005
"""Between two looks for a claim: a job takes some hundredths of a second."""

SETTLE_SECONDS = 0.3
"""A write that had left a process when it was stopped may still land. After so long it has, and the ledger shows it."""

TAKE_OVER_SECONDS = 90.0
LAST_WORD_SECONDS = 30.0
"""Between thaw and the last refused write, at most: a worker tries each of its writes for up to 20 s."""


class NoVictim(RingfenceError):
    """All jobs had ended before a worker could be stopped in the middle of one."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A worker process under SIGSTOP, and what it holds by the ledger's word, looked up after the signal."""

    pid: int
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done, and what came of it."""

    frozen: Stopped
    frozen_seconds: float
    taken_over: tuple[Claim, ...]
    """Those of the frozen worker's claims that another worker's followed."""
    killed: Stopped
    late_writes: tuple[LateWrite, ...]


class Saboteur:
    """Stops worker processes. ``over`` is set when there is nothing left to spoil, or the demo is given up."""

    def __init__(
        self,
        log: WorkerLog,
        ledger: Ledger,
        workers: Callable[[], Sequence[int]],
        tell: Callable[[str], None],
        over: threading.Event,
    ) -> None:
        self._log, self._ledger, self._workers, self._tell, self._over = log, ledger, workers, tell, over
        self._claims = OpenClaims()
        self._killed: Stopped | None = None

    def strike(self) -> Damage:
        """Freeze one, kill another, thaw the first when others have its jobs. Raises `NoVictim`."""
        while True:
            with self._frozen() as frozen:
                since = time.monotonic()
                killed = self._kill(other_than=frozen.pid)
                taken_over = self._wait_for_take_over(frozen)
            seconds = time.monotonic() - since
            if taken_over:
                self._tell(
                    f"worker {frozen.pid} thawed after {seconds:.1f} s: {len(taken_over)} of its jobs have another owner"
                )
                return Damage(frozen, seconds, taken_over, killed, self._late_writes(taken_over))
            if self._over.is_set():
                raise NoVictim()
            self._tell(f"worker {frozen.pid} thawed: nobody had taken its jobs over; looking for another")

    # --- choosing ----------------------------------------------------------------------------------------------------

    def _stop_one(self, but: Collection[int] = ()) -> Stopped:
        """Stop a process that holds a claim, before the signal and after it. A killed one still does, until others have it."""
        while not self._over.is_set():
            self._listen()
            alive = set(self._workers()) - set(but) - ({self._killed.pid} if self._killed else set())
            for claim in self._claims.newest_first():
                if claim.pid in alive and claim.is_held(self._ledger):
                    stopped = self._stop(claim.pid)
                    if stopped is not None:
                        return stopped
                    break  # what the logs said is old by now
            self._over.wait(LOOK_SECONDS)
        raise NoVictim()

    def _stop(self, pid: int) -> Stopped | None:
        """None, and the process goes on, if all its jobs have ended meanwhile."""
        with _thawed_unless_kept(pid) as keep:
            self._over.wait(SETTLE_SECONDS)
            self._listen()
            held = tuple(claim for claim in self._claims.of(pid) if claim.is_held(self._ledger))
            if held:
                keep()
        return Stopped(pid, held) if held else None

    # --- the faults --------------------------------------------------------------------------------------------------

    @contextmanager
    def _frozen(self) -> Iterator[Stopped]:
        frozen = self._stop_one()
        self._tell(f"worker {frozen.pid} frozen (SIGSTOP) while it ran {_described(frozen.claims)}")
        try:
            yield frozen
        finally:
            _signal(frozen.pid, signal.SIGCONT)

    def _kill(self, other_than: int) -> Stopped:
        """Once in a demo. The victim is stopped first, so that it cannot end its job between the look and the kill."""
        if self._killed is None:
            self._killed = self._stop_one(but=(other_than,))
            _signal(self._killed.pid, signal.SIGKILL)
            self._tell(f"worker {self._killed.pid} killed (SIGKILL) while it ran {_described(self._killed.claims)}")
        return self._killed

    def _wait_for_take_over(self, frozen: Stopped) -> tuple[Claim, ...]:
        """Wait until the frozen process holds none of its claims any more. Returns those that another claim has followed."""
        give_up_at = time.monotonic() + TAKE_OVER_SECONDS
        while any(claim.is_held(self._ledger) for claim in frozen.claims) and time.monotonic() < give_up_at:
            if self._over.wait(0.1):
                break
        return tuple(claim for claim in frozen.claims if claim.taken_over_by(self._ledger) is not None)

    def _late_writes(self, taken_over: Sequence[Claim]) -> tuple[LateWrite, ...]:
        """What the thawed process still tried to write, read from its log until it has let go of every job it had lost."""
        pid, told = taken_over[0].pid, list[Event]()
        give_up_at = time.monotonic() + LAST_WORD_SECONDS
        while set(taken_over) & set(self._claims.of(pid)) and time.monotonic() < give_up_at:
            told += self._listen()
            time.sleep(0.05)
        return late_writes_in([event for event in told if event.pid == pid], taken_over, self._ledger)

    def _listen(self) -> list[Event]:
        events = self._log.new_events()
        self._claims.see(events)
        return events


@contextmanager
def _thawed_unless_kept(pid: int) -> Iterator[Callable[[], None]]:
    """Stop a process; let it go on at the end of the block, also of one that fails, unless ``keep()`` was called."""
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    _signal(pid, signal.SIGSTOP)
    try:
        yield keep
    finally:
        if not kept:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(pid, number)


def _described(claims: Sequence[Claim]) -> str:
    first = claims[0]
    others = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
    return f"job {first.job_id} with token {first.token}{others}"
