"""The demo from beginning to end, in the order in which it happens."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ringfence.client import Client
from ringfence.job import Job
from ringfence.local.demo.broken import broken_files
from ringfence.local.demo.endings import Endings
from ringfence.local.demo.faults import Damage, NoVictim, Saboteur
from ringfence.local.demo.plain import expected_of
from ringfence.local.demo.reckoning import Found, Verdict, reckon
from ringfence.local.demo.report import closing_table, told_files
from ringfence.local.demo.screen import Screen
from ringfence.local.demo.sources import Source, Sources
from ringfence.local.demo.submission import Accepted, submit, upload
from ringfence.local.demo.system import System
from ringfence.local.demo.tables import rows_of
from ringfence.ports import Ledger

Value = TypeVar("Value")

LOOK_SECONDS = 0.1
READS_AT_ONCE = 8


def run(sources: Sources, system: System, screen: Screen) -> Verdict:
    """Index the files and the broken ones while two workers come to harm; then count what is there."""
    for line in sources.left_out:
        screen.say(f"left out {line}")
    # The long broken files come last: if no job was caught before, one of them will be.
    files = [*sources.files, *broken_files()]
    upload(files, system.s3, system.bucket)
    screen.say(f"uploaded files: {told_files(len(files))}")
    over = threading.Event()
    saboteur = Saboteur(system.worker_log(), system.ledger, system.workers, screen.say, over)
    striking = _in_background(saboteur.strike)
    try:
        accepted = _submit_and_wait(files, system, screen)
    finally:
        over.set()
    damage = _result_of(striking, screen)
    found = _look_up(files, accepted, damage, system)
    screen.say("read every row of the ledger and of the tables")
    expected = expected_of(files, system.worker_folder)
    screen.say("counted the same files in a plain loop")
    verdict = reckon(expected, found, screen.seconds)
    screen.table(closing_table(verdict, damage))
    return verdict


def _submit_and_wait(files: Sequence[Source], system: System, screen: Screen) -> Accepted:
    endings = Endings(system.worker_log(), system.ledger)
    pause = threading.Event()
    with screen.counting("jobs have ended", len(files)) as counter, Client(system.api_url) as client:
        accepted = submit(files, client, secrets.token_hex(8), lambda sofar: counter.at(endings.count(sofar.jobs)))
        screen.say(f"submitted {len(accepted.jobs)} jobs")
        while (ended := endings.count(accepted.jobs)) < len(accepted.jobs) and not endings.stalled:
            counter.at(ended)
            pause.wait(LOOK_SECONDS)
        counter.at(ended)
    for line in accepted.refused:
        screen.say(f"refused {line}")
    screen.say(f"{ended} jobs have ended")
    return accepted


def _look_up(files: Sequence[Source], accepted: Accepted, damage: Damage | None, system: System) -> Found:
    return Found(
        files=[source.key for source in files],
        jobs=_rows_of_jobs(accepted.jobs, system.ledger),
        modules=rows_of(system.dynamodb, system.table("Modules"), "module"),
        totals=rows_of(system.dynamodb, system.table("PackageTotals"), "package"),
        late_writes=() if damage is None else damage.late_writes,
    )


def _rows_of_jobs(keys: dict[str, str], ledger: Ledger) -> dict[str, Job | None]:
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        return dict(zip(keys.values(), pool.map(ledger.get, keys), strict=True))


def _result_of(striking: Future[Damage], screen: Screen) -> Damage | None:
    """None, and the reckoning will say that no late write was refused, if there was no victim."""
    try:
        return striking.result()
    except NoVictim as fault:
        screen.say(str(fault))
        return None


def _in_background(work: Callable[[], Value]) -> Future[Value]:
    """In a thread that does not keep the process from ending: after Ctrl-C nobody waits for it."""
    future: Future[Value] = Future()

    def carry_out() -> None:
        try:
            future.set_result(work())
        except BaseException as fault:  # noqa: BLE001 - raised again where the result is asked for
            future.set_exception(fault)

    threading.Thread(target=carry_out, name="saboteur", daemon=True).start()
    return future
