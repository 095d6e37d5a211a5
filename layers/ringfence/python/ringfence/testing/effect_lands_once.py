"""A user's own job under every fault, at every moment of its run: does its effect stay single?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ringfence.app import App
from ringfence.effects import Item
from ringfence.job import Guarantee, State
from ringfence.testing.fault_report import FaultReport, Finding, rows_text
from ringfence.testing.lives import AFTER_THE_END, Fault, Life, Lived, Scenario, Struck, in_time
from ringfence.testing.moments import CLAIM, Kind, Moment
from ringfence.testing.observed import Held, Landed, changing, compare, counts
from ringfence.testing.receiver import Receiver
from ringfence.testing.system import MemorySystem

FAULTS: dict[Kind, tuple[Fault, ...]] = {
    "port": ("crash", "freeze", "lost-reply", "duplicate"),
    "receiver": ("crash", "freeze", "lost-reply"),
    "line": ("crash", "freeze"),
    "return": ("crash", "freeze"),
}

ANSWERS_WITH_FAILURES = frozenset({"push"})
"""Calls that tell what failed by what they return, and never raise `Unavailable`."""

FIRST, LAST = 3, 2
"""A place that a job comes to again and again is struck the first times and the last: a loop of a thousand is no more than
one of five."""

DEFAULT_ATTEMPTS = 5


def assert_effect_lands_once(
    app: App,
    name: str,
    payload: Any = None,
    *,
    tables: Mapping[str, Sequence[str]] | None = None,
    items: Mapping[str, Sequence[Item]] | None = None,
    receivers: Sequence[Receiver] = (),
    arrange: Callable[[MemorySystem], object] | None = None,
    observe: Callable[[MemorySystem], Any] | None = None,
    ignore: Iterable[str] = (),
    guarantee: str = "once",
    ends: str = "succeeded",
    lines: bool = True,
    only: str | None = None,
    timeout_seconds: float = 30.0,
) -> FaultReport:
    """Live a job of yours once undisturbed, then once for each fault at each moment of its run, and compare what is there.

    The core is the real one, over stores in memory and a clock that nobody waits for. A moment comes after each call of the
    worker's (the claim, ``ctx.read``, ``ctx.write``, ``ctx.checkpoint``, the commit, the acknowledgement, a receiver's answer),
    before each line of your code, and when it returns. There the worker is killed; or frozen until its lease is long over and
    another has done the job, and then goes on; or the reply to the call is lost; or the same ticket comes again. After the end,
    the ticket comes once more, and the log is read again. Then everything goes on undisturbed, and all must have ended as in
    the first life, with the same effect.

    ``payload`` is any value that JSON has; None is ``{}``. What is compared: all ``tables`` (``{"Users": ["email"]}``: names as
    your job calls them, and their key attributes), which begin with ``items``; the calls that landed at the ``receivers``;
    and what ``observe`` returns, for all other places: a number, or the rows there. ``arrange`` is called before each life, to
    put back whatever the job writes elsewhere, or the second life finds what the first one left. Attributes that hold the
    token, a time or a random id are found out and not compared; ``ignore`` names others, as one that holds ``ctx.attempt``.

    ``guarantee="at-least-once"`` asks for what that promises: the effect is there, perhaps twice, and the report says how
    often. ``ends="dead"`` is for a payload that must fail. A job that allows one attempt only may end dead, without its effect.
    ``lines=False`` leaves the lines of your code alone (`sys.settrace` follows them, which a debugger or coverage may want).
    ``only`` is one life of a report's, such as ``"crash-7"``. ``timeout_seconds`` is real time, for each life.

    A killed process runs no code, but here its ``finally`` and ``except BaseException`` blocks run, though nothing that they
    call through ``ctx`` or a `Receiver` takes place. Each attempt at an ``async def`` job has an event loop of its own.

    Returns the report. Raises `AssertionError`, with the report, when the effect was not single in some life, when a job did
    not end, and when there is nothing to see (an undisturbed life changes nothing that is observed). `ValueError` for a name
    that is not registered, a life that there is not, or words that are not among those above. `TimeoutError` for a life that is
    not over in time: a frozen job that holds a lock stops the other worker, too, as they are threads of one process here.
    """
    __tracebackhide__ = True
    if name not in app.jobs:
        raise ValueError(f"the app has no job named {name!r}, only {', '.join(sorted(app.jobs)) or 'none at all'}")
    scenario = Scenario(
        app=app,
        name=name,
        payload=payload,
        tables=tables or {},
        items=items or {},
        receivers=receivers,
        arrange=arrange,
        observe=observe,
        guarantee=Guarantee(guarantee),
        lines=lines,
    )
    report = _Trial(scenario, State(ends), frozenset(ignore), timeout_seconds).report(only)
    if report.findings:
        raise AssertionError(str(report))
    return report


class _Trial:
    """The lives of one scenario, and the judgement on each."""

    def __init__(self, scenario: Scenario, ends: State, ignore: frozenset[str], timeout_seconds: float) -> None:
        self._scenario, self._ends, self._ignore, self._timeout_seconds = scenario, ends, ignore, timeout_seconds

    def report(self, only: str | None) -> FaultReport:
        undisturbed = self._live("undisturbed", Life(self._scenario).lived)
        self._ensure_ended_well(undisturbed)
        unlike = self._unlike(undisturbed)
        self._ensure_seen(undisturbed, unlike)
        plan = list(_plan(undisturbed.moments))
        if only is not None:
            plan = [struck for struck in plan if str(struck) == only]
            if not plan:
                raise ValueError(f"there is no life {only!r}; a report names them: crash-7, redelivery")
        report = FaultReport(self._scenario.name, self._scenario.guarantee, len(undisturbed.moments))
        for struck in plan:
            lived = self._live(str(struck), Life(self._scenario, struck).lived)
            if lived.struck:  # a job that goes another way each time may not come to the moment
                self._judge(struck, lived, undisturbed, unlike, report)
        return report

    def _live(self, life: str, live: Callable[[], Lived]) -> Lived:
        return in_time(live, self._timeout_seconds, life)

    # --- before anything happens to it -------------------------------------------------------------------------------

    def _ensure_ended_well(self, lived: Lived) -> None:
        name, job = self._scenario.name, lived.job
        if not lived.finished:
            raise AssertionError(f"{name} does not end, though nothing happens to it: {_state(lived)}")
        ended = State.SUCCEEDED if job is None else job.state
        if ended is not self._ends:
            raise AssertionError(f"{name} ends {ended}, not {self._ends}, though nothing happens to it: {_state(lived)}")

    def _unlike(self, undisturbed: Lived) -> dict[str, frozenset[str]]:
        """What is not to be compared."""
        later = self._live("undisturbed", Life(self._scenario).redriven)
        ours = {part for part in undisturbed.held if part != "observed"}
        for part, rows in undisturbed.held.items():
            same = len(rows) == len(later.held[part]) if part in ours else rows_text(rows) == rows_text(later.held[part])
            if not same:
                raise AssertionError(
                    f"{self._scenario.name}: two undisturbed lives differ in {part}:\n  first   {rows_text(rows)}\n"
                    f"  second  {rows_text(later.held[part])}\n"
                    "Does arrange= put back what the job writes outside ctx, and does observe= leave out times and random ids?"
                )
        differing = changing(undisturbed.held, later.held)
        return {part: self._ignore | (differing[part] if part in ours else frozenset()) for part in undisturbed.held}

    def _ensure_seen(self, lived: Lived, unlike: Mapping[str, frozenset[str]]) -> None:
        """A test that sees nothing passes whatever the job does."""
        if self._ends is not State.SUCCEEDED:
            return
        nothing_happened = compare(lived.before, lived.held, lived.before, unlike)
        if all(landed is Landed.ONCE for landed in nothing_happened.values()) and counts(lived.before) == counts(lived.held):
            raise AssertionError(
                f"{self._scenario.name} changes nothing that is looked at ({', '.join(lived.held) or 'nothing is'}): "
                "name what it writes in tables=, receivers= or observe="
            )

    # --- after --------------------------------------------------------------------------------------------------------

    def _judge(
        self, struck: Struck, lived: Lived, undisturbed: Lived, unlike: Mapping[str, frozenset[str]], report: FaultReport
    ) -> None:
        report.lives[struck.fault] += 1
        landed = compare(undisturbed.before, undisturbed.held, lived.held, unlike)
        if struck.fault == "crash" and undisturbed.moments[(struck.at or 1) - 1].told == CLAIM:
            # The code ran but once: what looks like a second effect is what the second attempt writes otherwise.
            landed = {part: Landed.OTHERWISE if how is Landed.TWICE else how for part, how in landed.items()}
        wrong = {part: how for part, how in landed.items() if how is not Landed.ONCE}
        ended = State.SUCCEEDED if lived.job is None else lived.job.state
        if lived.finished and ended is self._ends and not wrong:
            return
        if lived.finished and self._tolerated(ended, set(wrong.values())):
            report.tolerated[Landed.TWICE if Landed.TWICE in wrong.values() else Landed.NEVER] += 1
            return
        where = "after the end" if struck.at is None else _place(undisturbed.moments[struck.at - 1])
        report.findings.append(
            Finding(
                life=str(struck),
                fault=struck.fault,
                where=where,
                finished=lived.finished,
                job=_state(lived),
                landed=wrong,
                held=_only(lived.held, wrong),
                expected=_only(undisturbed.held, wrong),
                receivers={f"receiver {receiver.name}": receiver.landed for receiver in self._scenario.receivers},
                knows_keys={f"receiver {receiver.name}": receiver.knows_keys for receiver in self._scenario.receivers},
            )
        )

    def _tolerated(self, ended: State, wrong: set[Landed]) -> bool:
        """What the job's own settings allow."""
        if self._scenario.guarantee is Guarantee.AT_LEAST_ONCE:
            return ended is self._ends and wrong == {Landed.TWICE}
        allowed = self._scenario.app.jobs[self._scenario.name].max_attempts or DEFAULT_ATTEMPTS
        return allowed == 1 and ended is State.DEAD and wrong <= {Landed.NEVER, Landed.IN_PART}


def _plan(moments: Sequence[Moment]) -> Iterator[Struck]:
    """Every life there is to be."""
    times = Counter((moment.kind, moment.told) for moment in moments)
    come: Counter[tuple[Kind, str]] = Counter()
    for moment in moments:
        place = moment.kind, moment.told
        come[place] += 1
        if FIRST < come[place] <= times[place] - LAST:
            continue
        for fault in FAULTS[moment.kind]:
            if fault != "lost-reply" or moment.method not in ANSWERS_WITH_FAILURES:
                yield Struck(fault, moment.number)
    yield from (Struck(fault) for fault in AFTER_THE_END)


def _place(moment: Moment) -> str:
    return f"before {moment.told}" if moment.kind == "line" else f"after {moment.told}"


def _only(held: Held, parts: Iterable[str]) -> Held:
    return {part: held[part] for part in parts}


def _state(lived: Lived) -> str:
    """Where the job stands, in a line."""
    if lived.job is None:
        return "no row, as its guarantee is at-least-once" + ("" if lived.finished else "; its ticket is still there")
    job = lived.job
    told = f"{job.state} after {job.attempts} attempt{'' if job.attempts == 1 else 's'}"
    return told + (f": {job.error}" if job.error and job.state is not State.SUCCEEDED else "")
