"""Asking ahead: more messages are on their way while short jobs are worked on, and none of them is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.errors import Unavailable
from ringfence.intake import Intake
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import FusedQueue, Lease
from ringfence.testing.system import MemorySystem

from .test_worker_feed import Served, eventually

SOONER_THAN_LEASES_END = 8.0
"""Seconds; a worker's leases here last ten."""


class AskedQueue(MemoryQueue):
    """A queue in memory that can be asked ahead."""

    fetched: int
    """Calls that took messages."""
    asked: int
    asked_for: int
    """Messages that the latest reply brings."""
    faults: set[str]
    """Which steps fail once: ``ask`` or ``reply``."""
    reply_begun: threading.Event
    may_reply: threading.Event

    def acknowledge_and_lease(
        self, done: Sequence[Lease], max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0
    ) -> list[Lease]:
        self.acknowledge(done)
        leases = self.lease(max_tickets, lease_seconds, wait_seconds)
        self.fetched += bool(leases)
        return leases

    def ask(self, done: Sequence[Lease], max_tickets: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        self.asked += 1
        self._fail("ask")
        leases = self.acknowledge_and_lease(done, max_tickets, lease_seconds)
        self.asked_for = len(leases)

        def reply() -> list[Lease]:
            self.reply_begun.set()
            self.may_reply.wait(10)
            if "reply" in self.faults:
                self.release(leases)
            self._fail("reply")
            return leases

        return reply

    def _fail(self, step: str) -> None:
        if step in self.faults:
            self.faults.remove(step)
            raise Unavailable(f"{step} failed")


def asked_ahead(code: Callable[..., Any], *faults: str, **options: Any) -> tuple[Served, AskedQueue]:
    made: list[AskedQueue] = []

    def wrap(name: str, port: Any) -> Any:
        if name == "queue:default":
            port.__class__ = AskedQueue
            port.fetched, port.asked, port.asked_for, port.faults = 0, 0, 0, set(faults)
            port.reply_begun, port.may_reply = threading.Event(), threading.Event()
            port.may_reply.set()
            assert isinstance(port, FusedQueue)
            made.append(port)
        return port

    return Served(code, wrap=wrap, **options), made[0]


@pytest.mark.parametrize("faults", [(), ("ask",), ("reply",), ("ask", "reply")], ids=lambda faults: " ".join(faults) or "well")
def test_short_jobs_are_asked_for_ahead_and_each_runs_once(faults: tuple[str, ...]) -> None:
    ran: list[str] = []
    here, queue = asked_ahead(lambda ctx: ran.append(ctx.job_id), *faults, before=300)
    here.wait_done(300)
    here.end()
    assert (queue.asked > 0, queue.faults, queue.bodies()) == (True, set(), [])
    assert len(ran) == len(set(ran)) == 300
    assert len(here.system.telemetry.named("queue_unreachable")) == len(faults)


class StuckOnceAsked:
    """One thread, whose jobs are short until it has asked for more: the job that it starts then stays until let go."""

    def __init__(self, *, may_reply: bool = True) -> None:
        self.stuck, self.go_on = threading.Event(), threading.Event()
        self.ready = threading.Event()
        self.ran = 0
        self.here, self.queue = asked_ahead(self.code, threads=1, before=40)
        if not may_reply:
            self.queue.may_reply.clear()
        self.ready.set()
        assert self.stuck.wait(10)

    def code(self, ctx: Context) -> None:
        self.ready.wait(10)
        if self.queue.asked and not self.stuck.is_set():
            self.stuck.set()
            while not (ctx.stopping or self.go_on.wait(0.01)):
                pass
        self.ran += 1


def test_what_was_asked_for_goes_back_when_no_thread_comes_to_it() -> None:
    jobs = StuckOnceAsked()
    assert jobs.queue.depth().leased > 1
    eventually(lambda: jobs.queue.depth().leased == 1, SOONER_THAN_LEASES_END)
    jobs.go_on.set()
    jobs.here.wait_done(40)
    jobs.here.end()


def test_what_was_asked_for_goes_back_at_once_when_it_stops() -> None:
    jobs = StuckOnceAsked()
    began = time.monotonic()
    jobs.here.end()
    assert time.monotonic() - began < SOONER_THAN_LEASES_END
    assert jobs.queue.depth().leased == 0
    assert jobs.queue.depth().ready == 40 - jobs.here.done > 0


def test_whoever_became_idle_while_the_watch_was_bringing_messages_is_called() -> None:
    """With its one thread waiting for ever, the worker would have been alive, and idle for good."""
    jobs = StuckOnceAsked(may_reply=False)
    assert jobs.queue.reply_begun.wait(10)
    jobs.go_on.set()
    eventually(lambda: jobs.ran == 40 - jobs.queue.depth().ready - jobs.queue.asked_for)
    time.sleep(0.02)  # from the end of its job to where it waits
    jobs.queue.may_reply.set()
    jobs.here.wait_done(40)
    jobs.here.end()


class CountedFeed:
    """Has as many messages as anybody wants; ``rooms`` says how many that was."""

    stopping, can_ask, out_of_reach = False, True, False

    def __init__(self) -> None:
        self.rooms: list[int] = []

    def exchange(self, done: Sequence[Lease], room: int, lease_seconds: float) -> list[Lease]:
        if self.out_of_reach:
            raise Unavailable("nobody is there")
        self.rooms.append(room)
        return [Lease("{}", f"{len(self.rooms)}/{number}", 1, "id", "default") for number in range(room)]


def intake_of(feed: CountedFeed) -> Intake:
    """Of a crew of two."""
    return Intake(
        "default",
        (),
        feed,  # type: ignore[arg-type]
        MemorySystem(App()).services,
        threads=2,
        lease_seconds=30.0,
        ahead_seconds=5.0,
        lock=threading.Lock(),
        over=threading.Event(),
        on_fetched=lambda messages, leased_seconds: (),
        on_pending=lambda leased_at: None,
        on_stop=lambda: None,
    )


def test_whoever_comes_back_while_another_still_waits_fetches_many() -> None:
    feed = CountedFeed()
    intake = intake_of(feed)

    def sent() -> Callable[[], None]:
        intake.pending.clear()  # as if they had been done meanwhile
        errand = intake.errand(())
        assert errand is not None
        return errand

    first, second = sent(), sent()
    first()
    sent()()
    second()
    sent()()
    assert feed.rooms == [1, 3, 1, 7], "one is left to the second, as long as there may be fewer than are wanted"


def test_while_one_thread_acknowledges_no_other_is_sent_to() -> None:
    """However often the watch looks while the queue does not answer."""
    feed = CountedFeed()
    intake = intake_of(feed)
    intake.done.append(Lease("{}", "first", 1, "id", "default"))
    errand = intake.errand_done()
    assert errand is not None
    intake.done.append(Lease("{}", "second", 1, "id", "default"))
    assert intake.errand_done() is None
    errand()
    assert intake.done == []
    intake.done.append(Lease("{}", "third", 1, "id", "default"))
    assert intake.errand_done() is not None


def test_what_is_done_is_acknowledged_once_the_queue_is_in_reach_again() -> None:
    """By whoever looks, for every thread may be busy for longer than the leases last."""
    feed = CountedFeed()
    intake = intake_of(feed)
    intake.done.append(Lease("{}", "first", 1, "id", "default"))
    for feed.out_of_reach in (True, True, False):
        errand = intake.errand_done()
        assert errand is not None
        errand()
    assert (intake.done, feed.rooms) == ([], [0])


def test_what_is_lost_is_not_started() -> None:
    intake = intake_of(CountedFeed())
    for _ in range(3):
        errand = intake.errand(())
        assert errand is not None
        errand()
    first, *others = [lease.receipt for lease, _ in intake.pending]
    intake.drop({first})
    assert [lease.receipt for lease, _ in intake.pending] == others


def test_what_is_asked_for_ahead_is_leased_as_shortly_as_any_job_is_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed with the reply unread is missed as soon as the shortest lease says."""
    leased: list[float] = []
    extended: list[float] = []
    ask, extend = AskedQueue.ask, AskedQueue.extend

    def asked(queue: AskedQueue, done: Sequence[Lease], room: int, seconds: float) -> Callable[[], list[Lease]]:
        leased.append(seconds)
        return ask(queue, done, room, seconds)

    def lengthened(queue: AskedQueue, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        extended.append(seconds)
        return extend(queue, leases, seconds)

    monkeypatch.setattr(AskedQueue, "ask", asked)
    monkeypatch.setattr(AskedQueue, "extend", lengthened)
    here, _ = asked_ahead(lambda ctx: None, other_lease=4.0, before=300)
    here.wait_done(300)
    here.end()
    assert set(leased) == {4.0}
    assert 10.0 in extended, "the worker's own, which these jobs have"
