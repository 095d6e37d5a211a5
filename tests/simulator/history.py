"""What happened, in the order of the stores: each call between the core and its adapters at the moment it took effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ringfence.change import Change, Refused, Written
from ringfence.job import Job
from ringfence.wire import Ticket


@dataclass(slots=True)  # and not frozen, which takes five times as long to make
class Entry:
    """One call that took effect, or one thing that somebody did or learned."""

    at: float
    """Seconds of true time."""
    process: str
    what: str
    """``port.method``, or what happened: ``accepted``, ``started``, ``crashed``, ``frozen``, ``checkpointed``, …"""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    reply: Any = None
    raised: BaseException | None = None
    sent_at: float = 0.0
    """Of a call: when it was made, in seconds of true time."""
    heard: bool = True
    """Of a call: whether its caller has got the reply."""


@dataclass(slots=True)
class Landed:
    """One write of a job's row: the row before it, if there was one, and after it, in the order of the store."""

    index: int
    """Of its entry in the history."""
    entry: Entry
    before: Job | None
    after: Job


@dataclass(slots=True)
class History:
    """Everything that happened in one run."""

    entries: list[Entry] = field(default_factory=list)
    landed: list[Landed] = field(default_factory=list)
    finished: bool = False
    """Whether everything was drained at the end: else nothing is known of what would have become of the rest."""
    strikes: list[tuple[int, str]] = field(default_factory=list)
    """The faults that struck, by the number of the call and their kind."""
    first_accepted: dict[str, Entry] = field(default_factory=dict)
    """The jobs a client was told of with a 2xx, by id, each with its first acceptance."""

    def of(self, *what: str) -> Iterator[Entry]:
        """The entries of these kinds, in order."""
        return (entry for entry in self.entries if entry.what in what)

    def with_rows(self) -> Iterator[Entry | Landed]:
        """The entries in order, and before each the rows that landed with it."""
        rows = iter(self.landed)
        landed = next(rows, None)
        for index, entry in enumerate(self.entries):
            while landed is not None and landed.index == index:
                yield landed
                landed = next(rows, None)
            yield entry

    def forget(self) -> None:
        """Let go of all that happened."""
        self.entries.clear()
        self.landed.clear()
        self.first_accepted.clear()

    def told(self, most: int = 400) -> str:
        """The history as text, a line for each entry, polls that found nothing left out."""
        lines = [line for entry in self.entries if (line := _line(entry))]
        left_out = len(lines) - most
        return "\n".join(lines[:most] + ([f"… and {left_out} more"] if left_out > 0 else []))


def pushed_in(push: Entry) -> Iterator[tuple[Ticket, float]]:
    """The tickets of a push, each with its delay in seconds."""
    tickets, *delay = push.args
    if not delay or isinstance(delay[0], int | float):
        delay = [[*delay, 0.0][:1] * len(tickets)]
    return zip(tickets, *delay, strict=True)


def _line(entry: Entry) -> str | None:
    if entry.reply == [] and entry.what.endswith((".lease", ".line", ".due", ".peek")):
        return None
    if entry.what.endswith((".depth", ".read", ".all")):
        return None
    outcome = f"raised {entry.raised!r}" if entry.raised is not None else _short(entry.reply)
    return f"{entry.at:10.3f} {entry.process:<10} {entry.what} {', '.join(_short(each) for each in entry.args)} -> {outcome}"


def _short(value: Any) -> str:
    name: Callable[[Any], str] = lambda job_id: str(job_id)[:6]  # noqa: E731
    match value:
        case Change():
            return (
                f"{name(value.job_id)}{{{', '.join(f'{k}={v}' for k, v in value.set.items() if k in _TOLD)}}}{value.add or ''}"
            )
        case Job():
            return f"{name(value.job_id)}[{value.state} token {value.token} attempts {value.attempts} version {value.version}]"
        case Written():
            return f"written {_short(value.job)}"
        case Refused():
            return f"refused by {_short(value.seen)}"
        case list() | tuple():
            return "[" + ", ".join(_short(each) for each in value) + "]"
    return str(value)[:160]


_TOLD = frozenset({"state", "run_at", "due_id", "lease_until", "worker", "cancel_requested", "checkpoint", "result", "error"})
