"""What befalls a system from outside: messages and records that nobody can read, and a queue that loses its memory."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence import jsontext
from ringfence.errors import Poisoned
from ringfence.job import Guarantee
from ringfence.ports import LogEntry
from ringfence.wire import MAX_PAYLOAD_BYTES, JobRecord, Ticket, decode_ticket, encode_records, encode_ticket

from .clients import QUEUES, TENANTS
from .history import History

if TYPE_CHECKING:
    from .world import World

UNREADABLE_RECORDS = (
    b"",
    b"\x1f\x8b\x08\x00",
    b"\xffnot a record",
    b'{"v":99,"jobs":[]}',
    b'{"v":1,"jobs":[{"job_id":"half-a-job"}]}',
)


def put_what_nobody_can_read(world: World) -> None:
    """Into the queues, as a stranger may who has access to them; and into the log."""
    rng = random.Random(f"strangers of {world.plan.seed}")
    for number in range(world.plan.strangers):
        world.scheduler.sleep(rng.uniform(2, 50))
        if rng.random() < 0.5:
            name = rng.choice(QUEUES)
            known = [job.job_id for job in world.ledger.all_jobs()]
            world.queues[name].put(_message(number, known, rng))
            world.pollers[name].ring()
        else:
            world.log.append([LogEntry(_record(number, rng), f"stranger-{number}")])
            world.records_came()


def _message(number: int, known: Sequence[str], rng: random.Random) -> str:
    match rng.choice(("another's", "nobody's", "half a job", "of the future")):
        case "nobody's":
            return encode_ticket(Ticket(ticket_id=f"stranger-{number}", job_id=f"nobody-{number}", tenant=TENANTS[0]))
        case "half a job":
            return json.dumps(_ticket(number, f"half-{number}", v=1, payload="{}"))
        case "of the future":
            return json.dumps(_ticket(number, rng.choice(known) if known else f"future-{number}", v=99))
    return "nobody here has sent this"


def _ticket(number: int, job_id: str, **more: object) -> dict[str, object]:
    return {"ticket_id": f"stranger-{number}", "job_id": job_id, "tenant": TENANTS[0], **more}


def _record(number: int, rng: random.Random) -> bytes:
    match rng.choice(("unreadable", "unreadable", "no queue", "too large")):
        case "no queue":
            return _record_of(f"astray-{number}", queue="gone", payload="{}")
        case "too large":
            payload = json.dumps({"n": "é" * (MAX_PAYLOAD_BYTES // 2)}, ensure_ascii=False)
            return _record_of(f"large-{number}", queue=rng.choice(QUEUES), payload=payload, guarantee=Guarantee.AT_LEAST_ONCE)
    return rng.choice(UNREADABLE_RECORDS)


def _record_of(job_id: str, *, queue: str, payload: str, guarantee: Guarantee = Guarantee.ONCE) -> bytes:
    job = JobRecord(
        job_id=job_id,
        tenant=TENANTS[0],
        queue=queue,
        name="count",
        payload=payload,
        payload_sha256=jsontext.sha256(payload),
        created_at=0,
        max_attempts=1,
        registered=False,
        guarantee=guarantee,
    )
    ((data, _),) = encode_records([job])
    return data


def lose_memory(world: World) -> None:
    """A queue forgets everything, as a Redis does that keeps no file; or what came last, as one does that is restarted."""
    rng = random.Random(f"losses of {world.plan.seed}")
    for _ in range(world.plan.losses):
        world.scheduler.sleep(rng.uniform(15, 80))
        marked = world.sweeps.read().marks  # one that never was is taken for new, and nothing compared
        names = [name for name in QUEUES if name in marked and world.queues[name].bodies()] or [*marked]
        how_many = rng.choice((None, None, 1, 3))
        if names:
            queue = world.queues[rng.choice(names)]
            before = queue.bodies()
            queue.lose(how_many)
            world.note("memory lost", queue.name, before[len(queue.bodies()) :])


def lost_with_its_queue(history: History) -> set[str]:
    """The jobs that rode in tickets when a queue lost its memory: those nobody can bring back."""
    bodies = [body for entry in history.of("memory lost") for body in entry.args[1]]
    return {ticket.job_id for body in bodies if (ticket := ticket_in(body)) is not None and ticket.payload is not None}


def ticket_in(body: str) -> Ticket | None:
    """None of what nobody can read."""
    try:
        return decode_ticket(body)
    except Poisoned:
        return None
