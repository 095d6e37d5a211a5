"""Which texts lie in the job's row and which are items of their own.

A write costs one unit per KB of the whole item, whatever it changes, and a row is written by every claim and heartbeat. So a
row stays within one KB through its whole life: a text that would take it further is written once beside it, before the row
that names it.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from ringfence.aws.itemsize import item_bytes
from ringfence.aws.rows import TEXTS, to_item
from ringfence.change import Change, apply
from ringfence.job import LINE_MARK, Job, PastAttempt, Progress, State

ROW_BYTES = 1024
INLINE_BYTES = 600
"""UTF-8 bytes of a text that may lie in the row."""

NAME_BYTES = 1
"""Of the attribute that holds a text."""

_MARK = "m" * 16
_TIME = 1_999_999_999_999
_ATTEMPT = PastAttempt(9_999, _TIME, _TIME + 9_999_999, "lost")
_WORKER_BYTES = 40

_GROWN: dict[str, Any] = {
    "token": 9_999,
    "version": 99_999,
    "attempts": 99,
    "ticket_deliveries": 999,
    "write_id": _MARK,
    "ticket_id": _MARK,
    "due_id": LINE_MARK + _MARK,
    "run_at": _TIME,
    "started_at": _TIME,
    "progress": Progress(99_999, 99_999),
    "history": (_ATTEMPT,) * 3,
    "cancel_requested": True,
    "hand_overs": 2,
}
"""What a row may come to hold in its life: the widest value each field has in practice. A row that outgrows this costs a unit
more, nothing else."""

_RUNNING: dict[str, Any] = {"state": State.RUNNING, "attempt_id": _MARK, "lease_until": _TIME}
_DEAD: dict[str, Any] = {"state": State.DEAD, "finished_at": _TIME, "expires_at": _TIME // 1000}
_NO_TEXTS: dict[str, Any] = dict.fromkeys(TEXTS)


def texts_apart_of_change(change: Change) -> dict[str, str]:
    """The texts this change must write as items of their own, and their sort keys. The same for the same change, always: a
    transaction that is sent again must be the same to the byte."""
    written = {field for field in TEXTS if change.set.get(field) is not None}
    if not written:
        return {}
    if change.seen is None:
        apart: Collection[str] = written  # what else the row holds is not known
    else:
        apart = _texts_apart(apply(change, change.seen), written)
    return {field: sort_key(field, change.write_id) for field in apart}


def texts_apart_of_row(job: Job) -> dict[str, str]:
    """The same for a new row."""
    written = {field for field in TEXTS if getattr(job, field) is not None}
    return {field: sort_key(field, job.write_id) for field in _texts_apart(job, written)}


def sort_key(field: str, write_id: str) -> str:
    """Of its own for every write, so that what a late owner leaves behind is never read."""
    return TEXTS[field].inline + write_id


def _texts_apart(job: Job, written: Collection[str]) -> list[str]:
    room = ROW_BYTES - _bytes_without_texts(job)
    for field in TEXTS.keys() - written:
        text_bytes = _text_bytes(job, field)
        # Taken for inline whenever it may be, for the row does not tell: at worst a text goes apart that need not.
        room -= text_bytes + NAME_BYTES if 0 < text_bytes <= INLINE_BYTES else 0
    apart = []
    for field in (field for field in TEXTS if field in written):
        text_bytes = _text_bytes(job, field)
        if text_bytes <= INLINE_BYTES and text_bytes + NAME_BYTES <= room:
            room -= text_bytes + NAME_BYTES
        else:
            apart.append(field)
    return apart


def _text_bytes(job: Job, field: str) -> int:
    text = getattr(job, field)
    if text is None and field == "payload":
        return INLINE_BYTES  # a row from a listing, whose payload was not loaded
    return 0 if text is None else len(text.encode())


def _bytes_without_texts(job: Job) -> int:
    """Of the row at its widest; of the row as it is when nothing will change it any more."""
    if job.state in (State.SUCCEEDED, State.CANCELLED):
        return item_bytes(to_item(dataclasses.replace(job, **_NO_TEXTS), {}))
    worker = max(job.worker or "", "w" * _WORKER_BYTES, key=len)
    grown = dataclasses.replace(job, **_NO_TEXTS, **_GROWN, worker=worker)
    return max(item_bytes(to_item(dataclasses.replace(grown, **form), {})) for form in (_RUNNING, _DEAD))
