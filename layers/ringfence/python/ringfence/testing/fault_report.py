"""What the lives of a job under faults have shown, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringfence.job import Guarantee
from ringfence.testing.observed import WORST_FIRST, Held, Landed, Row, canonical
from ringfence.testing.receiver import Received

MOST_TOLD = 8
"""So many findings are told in full."""

MOST_CHARACTERS = 240
"""Of a part's rows."""

FAULT_WORDS = {
    "crash": "killed",
    "lost-reply": "the reply lost",
    "redelivery": "the ticket once more",
    "replay": "the request and the log once more",
    "duplicate": "the ticket twice",
    "freeze": "frozen past its lease",
}
"""The plainest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One life in which the effect did not stay single, or the job did not end as it should."""

    life: str
    """Its name, for ``only=`` and ``--ringfence-life``."""
    fault: str
    where: str
    finished: bool
    job: str
    """Where the job stood at the end."""
    landed: Mapping[str, Landed]
    """By part (``table Users``, ``receiver stripe``, ``observed``): how often the effect is there, where it is not once."""
    held: Held = field(repr=False)
    expected: Held = field(repr=False)
    receivers: Mapping[str, Sequence[Received]] = field(repr=False)
    knows_keys: Mapping[str, bool] = field(repr=False)

    @property
    def verdict(self) -> str:
        """The worst of it, in a few words."""
        if self.landed:
            worst = next(landed for landed in WORST_FIRST if landed in self.landed.values())
            return f"landed {worst}"
        return "did not end as it should" if self.finished else "did not end"

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {FAULT_WORDS[self.fault]} {self.where}    [{self.life}]"]
        for part in self.landed:
            lines.append(f"    {part} held    {rows_text(self.held[part])}")
            lines.append(f"    {' ' * len(part)} not     {rows_text(self.expected[part])}")
        return "\n".join([*lines, f"    the job: {self.job}"])


@dataclass(slots=True)
class FaultReport:
    """All lives of one job. Its text says what happened in each that went wrong, and what usually is the cause."""

    job: str
    guarantee: Guarantee
    moments: int
    """Of an undisturbed life: so many places to strike."""
    lives: Counter[str] = field(default_factory=Counter)
    """By fault."""
    findings: list[Finding] = field(default_factory=list)
    tolerated: Counter[Landed] = field(default_factory=Counter)
    """How often the effect landed twice, or not at all, where the guarantee or the job's one attempt allows it."""

    @property
    def summary(self) -> str:
        """One line."""
        count = self.lives.total()
        lives = f"{self.job}: {count} {'life' if count == 1 else 'lives'}"
        if self.findings:
            verdicts = Counter(finding.verdict for finding in self.findings)
            return f"{lives}; " + ", ".join(f"{verdict} in {times}" for verdict, times in verdicts.items())
        faults = ", ".join(f"{fault} {times}" for fault, times in self.lives.items())
        if self.guarantee is Guarantee.AT_LEAST_ONCE:
            return (
                f"{lives} ({faults}); its effect landed in each, and twice in {self.tolerated[Landed.TWICE]}, "
                "as at-least-once allows"
            )
        missing = self.tolerated[Landed.NEVER]
        if missing:
            return f"{lives} ({faults}); its effect landed at most once, and in {missing} not at all, as it has one attempt"
        return f"{lives} ({faults}); its effect landed once in each"

    def __str__(self) -> str:
        if not self.findings:
            return self.summary
        plainest_first = sorted(self.findings, key=lambda finding: list(FAULT_WORDS).index(finding.fault))
        told, more = [str(finding) for finding in plainest_first[:MOST_TOLD]], plainest_first[MOST_TOLD:]
        if more:
            told.append(f"and {len(more)} more: {', '.join(finding.life for finding in more)}")
        told += [f"Why: {reason}" for reason in dict.fromkeys(self._reasons())]
        alone = plainest_first[0].life
        told.append(f'One life alone, for a debugger: only="{alone}", or pytest --ringfence-life {alone}')
        return "\n\n".join([self.summary, *told])

    def _reasons(self) -> Iterator[str]:
        for finding in self.findings:
            for part, landed in finding.landed.items():
                if landed is Landed.OTHERWISE:
                    yield _REASON_OTHERWISE
                if landed is not Landed.TWICE:
                    continue
                kind, _, name = part.partition(" ")
                if kind == "receiver":
                    yield _reason_of_receiver(name, finding.receivers[part], finding.knows_keys[part])
                elif kind == "table":
                    yield _REASON_TABLE.format(name)
                else:
                    yield _REASON_ELSEWHERE
            if not finding.finished:
                yield "a job that was interrupted must be able to begin again. Does it wait for what its first attempt left?"


_REASON_OTHERWISE = (
    "another attempt has left other values. If they are meant to differ (one may hold ctx.attempt), name the attributes in "
    "ignore=."
)

_REASON_TABLE = (
    "{0} was written by an attempt that did not come to its end, and again by the next one. ctx.write lands at once: key what "
    "it puts by ctx.job_id, with unless_exists=True. A version= that each attempt reads anew guards against others, not "
    "against the attempt before. What must happen once belongs into ctx.effects, which commits with the job."
)

_REASON_ELSEWHERE = (
    "an effect outside ctx.effects and ctx.write is not fenced. An attempt that is killed before its end has had it, and the "
    "next one has it again. Stage it with ctx.effects; or, where that cannot be, let the receiver refuse what it has seen, by "
    "ctx.idempotency_key."
)


def _reason_of_receiver(name: str, landed: Sequence[Received], knows_keys: bool) -> str:
    keys = [call.idempotency_key for call in landed]
    if None in keys:
        return f"{name} was called without an idempotency key, so a repeated call is a new one to it: pass ctx.idempotency_key."
    if len(set(keys)) > 1:
        return f"{name} was given another idempotency key by each attempt: pass ctx.idempotency_key, which stays the same."
    if not knows_keys:
        return (
            f"{name} does not look at idempotency keys. A token keeps a late owner out, but the next owner comes with a higher "
            "one: only the receiver can refuse the second call, or be asked beforehand whether the first has arrived."
        )
    return _REASON_ELSEWHERE


def rows_text(rows: Sequence[Row]) -> str:
    """Some rows in a line, cut to `MOST_CHARACTERS`."""
    if not rows:
        return "nothing"
    counted = Counter(canonical(row) for row in rows)
    text = "; ".join(row + (f" ({times} times)" if times > 1 else "") for row, times in counted.items())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(rows)} in all)"
