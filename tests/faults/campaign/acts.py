"""What the nemesis can do: each act hurts the bed in one way, and says how and when it is undone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from ringfence.errors import RingfenceError
from ringfence.local.sources.kinesis_batch import Piece, Record, event_of
from ringfence.redis.condition import parse_info
from ringfence.testing.door import Door
from ringfence.testing.redis_server import RedisServer
from ringfence.wire import Ticket, encode_ticket, new_ticket

from .bed import DEFAULT, GATEWAY, HIDDEN_SECONDS, PRIORITY, RELAY, TIMERS, WORKER, WORKERS, Bed
from .books import Books, Kind
from .inside.orders import THROTTLED, WRITES, Refusal
from .load import Load
from .watch import Watch

STEP_SECONDS = 20.0
"""Until a replica has everything, or a process is there again, at most."""


class NotNow(RingfenceError):
    """An act is not possible at this moment."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What acts are given."""

    bed: Bed
    load: Load
    watch: Watch
    books: Books
    rng: random.Random
    confirmed: set[str] = field(default_factory=set)
    """Interesting events that an act has seen for itself."""
    spared_until: dict[int, float] = field(default_factory=dict)
    """Processes that no signal is sent to before this time on the monotonic clock, by pid."""

    def spared(self) -> set[int]:
        now = time.monotonic()
        return {pid for pid, until in self.spared_until.items() if until > now}


@dataclass(frozen=True, slots=True)
class Lasting:
    """It goes on for so long, unless somebody undoes it sooner."""

    seconds: float
    undo: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Act:
    """``do`` returns what it did, for the record, and how it goes on."""

    name: str
    do: Callable[[Stage], tuple[str, Lasting | None]]
    needs: str | None = None
    """``sqs`` or ``redis``: only where there is a queue on it."""
    weight: float = 1.0
    """How often it is chosen, beside the others: more where what it is to lead to is a matter of luck."""
    leads_to: tuple[str, ...] = ()
    """Interesting events, if all goes well: it is chosen more often until they have happened."""
    hurts: bool = True
    """It counts as a fault."""


Done = tuple[str, Lasting | None]


# --- processes -------------------------------------------------------------------------------------------------------


def kill(stage: Stage, among: Sequence[str] | None = None) -> Done:
    """SIGKILL to any process, or to one of some functions."""
    function, pid = _any_process(stage, among)
    _signal(pid, signal.SIGKILL)
    return f"{function} {pid} killed", None


def freeze(stage: Stage) -> Done:
    """SIGSTOP to any process, for less or more than a lease."""
    function, pid = _any_process(stage)
    seconds = stage.rng.uniform(0.3, 3.0) * stage.bed.lease_seconds
    _signal(pid, signal.SIGSTOP)
    return f"{function} {pid} frozen for {seconds:.1f} s", Lasting(seconds, lambda: _thaw(stage.bed, pid))


def freeze_owner(stage: Stage) -> Done:
    """SIGSTOP to a worker that holds jobs, for so long that others take them over."""
    pid = _owner(stage)
    seconds = stage.rng.uniform(2.5, 4.0) * stage.bed.lease_seconds
    _signal(pid, signal.SIGSTOP)
    return f"worker {pid} frozen with its jobs for {seconds:.1f} s", Lasting(seconds, lambda: _thaw(stage.bed, pid))


def kill_owner(stage: Stage) -> Done:
    """SIGKILL to a worker that holds jobs."""
    pid = _owner(stage)
    _signal(pid, signal.SIGKILL)
    return f"worker {pid} killed with its jobs", None


def rolling_restart(stage: Stage) -> Done:
    """One process after the other, now with the next version of records and tickets, or back to this one.

    That version is all that is mixed. The code is the same in all of them: there is no release yet whose code could run beside
    it.
    """
    bed = stage.bed
    if stage.spared():
        raise NotNow("a process is left alone")
    version = 2 if bed.orders.current.writes_version == 1 else 1
    _order(bed, writes_version=version)
    for function in bed.functions:
        there = list(bed.pids(function))
        for pid in there:
            if pid not in bed.pids(function):
                continue  # it has ended meanwhile, and another's process may have its number
            _signal(pid, signal.SIGCONT)
            # A process of a function has no end of its own; those of a `ringfence worker` hand over.
            _signal(pid, signal.SIGTERM if function == WORKERS else signal.SIGKILL)
            with suppress(RingfenceError):
                what = f"another process stands in for {function} {pid}"
                bed.wait_for(what, partial(_is_replaced, bed, function, pid, len(there)), STEP_SECONDS)
    return f"every process restarted; they write version {version}", None


SPARED_SECONDS = HIDDEN_SECONDS + 2.0
"""An invocation has ended by then."""


def spare(stage: Stage) -> Done:
    """No signal to a function's process that has a job longer than its invocation: it is to come so far that it hands it over.
    Everything else goes on."""
    if stage.spared():
        raise NotNow("one is left alone already")
    owners = {pid for job_id, pid in stage.watch.running().items() if _is_haul(stage, job_id)}
    if not (pids := owners.intersection(stage.bed.pids(WORKER))):
        raise NotNow("no process has a job longer than its invocation")
    pid = stage.rng.choice(sorted(pids))
    stage.spared_until[pid] = time.monotonic() + SPARED_SECONDS
    return f"worker {pid} left alone for {SPARED_SECONDS:.0f} s", None


def _is_haul(stage: Stage, job_id: str) -> bool:
    promise = stage.books.of_job(job_id)
    return promise is not None and promise.kind is Kind.HAUL


def end_workers(stage: Stage) -> Done:
    """SIGTERM to each process of the `ringfence worker`: it hands over what it cannot end; or SIGKILL to their parent."""
    bed = stage.bed
    assert bed.workers is not None
    if stage.rng.random() < 0.6:
        for pid in bed.pids(WORKERS):
            _signal(pid, signal.SIGTERM)
        return "SIGTERM to every worker process", None
    bed.workers.stop()
    bed.start_workers()
    return "ringfence worker killed with its processes, and started again", None


# --- the network -----------------------------------------------------------------------------------------------------


def cut(stage: Stage) -> Done:
    """Every connection through a door ends."""
    name, door = _any_door(stage)
    door.cut()
    return f"connections to {name} cut", None


def shut(stage: Stage) -> Done:
    """Nobody gets through a door for a while."""
    name, door = _any_door(stage)
    seconds = stage.rng.uniform(1.0, 7.0)
    door.shut()
    return f"{name} out of reach for {seconds:.1f} s", Lasting(seconds, lambda: _open(stage.bed, door))


def slow(stage: Stage) -> Done:
    """Everything through a door takes its time."""
    name, door = _any_door(stage)
    seconds, delay = stage.rng.uniform(2.0, 5.0), stage.rng.uniform(0.02, 0.3)
    door.slow(delay)
    return f"{name} slow by {delay * 1000:.0f} ms for {seconds:.1f} s", Lasting(seconds, lambda: door.slow(0.0))


BETWEEN_LOST_SECONDS = 0.1


def lose_replies(stage: Stage) -> Done:
    """What was asked for is done, and nobody hears of it: of the ledger mostly writes, which must be known again."""
    name, door = ("the ledger", stage.bed.doors.ledger) if stage.rng.random() < 0.6 else _any_door(stage)
    asked_with = stage.rng.choice(WRITES).encode() if door is stage.bed.doors.ledger else b""
    before = door.lost_replies
    for _ in range(stage.rng.randint(2, 12)):
        door.lose_replies(1, asked_with)  # each by itself, so that the call is made again and hears what became of it
        time.sleep(BETWEEN_LOST_SECONDS)
    if not (lost := door.lost_replies - before):
        raise NotNow(f"nobody asked {name} for anything")
    return f"{lost} answers of {name} lost", None


# --- AWS by script ---------------------------------------------------------------------------------------------------


def throttle(stage: Stage) -> Done:
    """The ledger's writes are throttled."""
    share = stage.rng.uniform(0.1, 0.5)
    refusals = {f"dynamodb.{write}": Refusal(code=stage.rng.choice(THROTTLED), share=share) for write in WRITES}
    return _refusing(stage, refusals, f"{share:.0%} of the ledger's writes throttled")


def conflict(stage: Stage) -> Done:
    """The ledger's transactions, and what they meet, are in conflict."""
    share = stage.rng.uniform(0.2, 0.6)
    refusals = {
        "dynamodb.TransactWriteItems": Refusal(code="TransactionCanceledException", share=share),
        "dynamodb.UpdateItem": Refusal(code="TransactionConflictException", share=share / 2),
    }
    return _refusing(stage, refusals, f"{share:.0%} of the transactions in conflict")


def fail_calls(stage: Stage) -> Done:
    """Log, queue and reads answer with errors."""
    share = stage.rng.uniform(0.1, 0.5)
    refusals = {
        "kinesis.PutRecords": Refusal(code="InternalFailure", share=share, status=500),
        "sqs.SendMessageBatch": Refusal(code="ServiceUnavailable", share=share, status=503),
        "sqs.ChangeMessageVisibilityBatch": Refusal(code="RequestThrottled", share=share),
        "dynamodb.GetItem": Refusal(code="InternalServerError", share=share, status=500),
        "dynamodb.BatchGetItem": Refusal(code="ProvisionedThroughputExceededException", share=share),
        "dynamodb.Query": Refusal(code="ProvisionedThroughputExceededException", share=share),
    }
    return _refusing(stage, refusals, f"{share:.0%} of the calls of log, queue and reads fail")


def fail_entries(stage: Stage) -> Done:
    """Of each batch some entries fail, or nearly all: then also those of whoever sends them again a few times."""
    share = stage.rng.choice([stage.rng.uniform(0.1, 0.6), 0.95, 0.95])
    operations = (
        "kinesis.put_records",
        "sqs.send_message_batch",
        "sqs.delete_message_batch",
        "sqs.change_message_visibility_batch",
    )
    _order(stage.bed, entries_failed=dict.fromkeys(operations, share))
    seconds = stage.rng.uniform(3.0, 6.0)
    return (
        f"{share:.0%} of the entries of each batch fail for {seconds:.1f} s",
        Lasting(seconds, lambda: _order(stage.bed, entries_failed={})),
    )


def wrong_clocks(stage: Stage) -> Done:
    """The wall clocks of workers are wrong, each by its own."""
    seconds = stage.rng.uniform(5.0, 10.0)
    offsets = tuple(stage.rng.choice([-20.0, -7.0, -2.0, 2.0, 7.0, 20.0, 60.0]) for _ in range(3))
    _order(stage.bed, clock_offsets_seconds=offsets)
    return (
        f"workers' clocks off by {', '.join(f'{each:+g}' for each in offsets)} s for {seconds:.1f} s",
        Lasting(seconds, lambda: _order(stage.bed, clock_offsets_seconds=())),
    )


# --- load and poison -------------------------------------------------------------------------------------------------


def burst(stage: Stage) -> Done:
    """Ten times the load."""
    seconds = stage.rng.uniform(0.7, 1.5)
    stage.load.burst(10.0)
    return f"ten times the load for {seconds:.1f} s", Lasting(seconds, lambda: stage.load.burst(1.0))


def poison(stage: Stage) -> Done:
    """Records that nobody can read, and messages of somebody else's."""
    bed, rng = stage.bed, stage.rng
    records = [
        b"\x1f\x8b\x08\x00",
        b"\xf3\x89\x9a\xc2\x0a",
        b"[1,2]",
        b'{"v":99,"jobs":[]}',
        b'{"v":1,"jobs":[{"job_id":"x"}]}',
        b"\xff\xfe\x00",
        b"9" * 5_000,
    ]
    chosen = rng.choices(records, k=rng.randint(10, 60))
    bed.kinesis.put_records(
        StreamName=bed.settings.stream, Records=[{"Data": data, "PartitionKey": str(n)} for n, data in enumerate(chosen)]
    )
    bodies = ["hello", "[]", "{}", '{"v":999,"ticket_id":"t","tenant":"x","job_id":"nobodys"}', "1" * 3_000, '{"Records":[]}']
    messages = 0
    for name in bed.sqs_queues:
        for body in rng.choices(bodies, k=rng.randint(2, 8)):
            bed.sqs.send_message(QueueUrl=bed.settings.queues[name], MessageBody=body)
            messages += 1
    for name in bed.redis_queues:
        strangers = [_stranger(rng) for _ in range(rng.randint(2, 8))]
        with suppress(RingfenceError):
            messages += len(strangers) - len(bed.queues[name].push(strangers))
    return f"{len(chosen)} unreadable records, {messages} foreign messages", None


def duplicate(stage: Stage) -> Done:
    """Tickets of jobs that run and that have ended come again, the very same."""
    chosen = [*stage.watch.latest("job_claimed")[-20:], *stage.watch.latest("job_succeeded")[-30:]]
    jobs = [job for job in stage.bed.ledger.peek(list(dict.fromkeys(chosen))) if job.ticket_id is not None]
    count = 0
    for name, queue in stage.bed.queues.items():
        again = [
            Ticket(ticket_id=job.ticket_id, job_id=job.job_id, tenant=job.tenant, name=job.name)
            for job in jobs
            if job.queue == name and job.ticket_id is not None
        ]
        with suppress(RingfenceError):
            count += len(again) - len(queue.push(again))
    if not count:
        raise NotNow("no ticket can be delivered again")
    return f"{count} tickets delivered again, most of them after their end", None


def rewind_log(stage: Stage) -> Done:
    """The relay reads the log again: from its beginning, or from some place on when there is much of it."""
    bed, kinesis, stream = stage.bed, stage.bed.kinesis, stage.bed.settings.stream
    described = kinesis.describe_stream(StreamName=stream)["StreamDescription"]
    count = 0
    for shard in described["Shards"]:
        records = _records_of(kinesis, stream, shard["ShardId"])
        first = 0 if len(records) <= MOST_REWOUND else stage.rng.randrange(len(records) - MOST_REWOUND)
        for start in range(first, min(first + MOST_REWOUND, len(records)), 100):
            piece = Piece(tuple(records[start : start + 100]))
            event = event_of(piece, described["StreamARN"], shard["ShardId"])
            bed.dev.invoke(RELAY, msgspec.json.encode(event))
            count += len(piece.records)
    return f"{count} records of the log read again", None


MOST_REWOUND = 200


MOST_PEEKED = 100


def last_resort(stage: Stage) -> Done:
    """SQS gives up on messages of jobs that have not ended."""
    bed = stage.bed
    if bed.settings.last_resort_queue is None:
        raise NotNow("there is no queue of last resort")
    latest = [promise.job_id for promise in stage.books.all() if promise.kind is not Kind.CARRY][-MOST_PEEKED:]
    jobs = [job for job in bed.ledger.peek(latest) if not job.state.terminal][:10]
    if not jobs:
        raise NotNow("every job has ended")
    for job in jobs:
        body = encode_ticket(new_ticket(job.ticket_id or f"given-up-{job.job_id}", job))
        bed.sqs.send_message(QueueUrl=bed.settings.last_resort_queue, MessageBody=body)
    return f"{len(jobs)} tickets given up by SQS", None


def narrow_pace(stage: Stage) -> Done:
    """A queue becomes slow: a rate, a pause or a full mark, so that jobs are parked."""
    queue = stage.rng.choice([DEFAULT, PRIORITY])
    seconds = stage.rng.uniform(4.0, 8.0)
    change: dict[str, Any] = stage.rng.choice([{"rate_per_second": 2.0, "burst": 2}, {"paused": True}, {"high_water_mark": 5}])
    with suppress(RingfenceError):  # it may have been done all the same
        stage.bed.client.set_queue(queue, **change)
    return f"{queue} narrowed for {seconds:.1f} s: {change}", Lasting(seconds, lambda: widen(stage.bed, queue))


def widen(bed: Bed, queue: str) -> None:
    """As it was. Whoever cannot be told now is told when all is healed."""
    with suppress(RingfenceError):
        bed.client.set_queue(queue, rate_per_second=None, burst=1, paused=False, high_water_mark=None)


# --- Redis -----------------------------------------------------------------------------------------------------------


def restart_redis(stage: Stage) -> Done:
    """Killed, and back with its file."""
    redis = _redis(stage)
    redis.kill()
    time.sleep(stage.rng.uniform(0.0, 2.0))
    stage.bed.start_redis_again()
    return "Redis killed and started with its file", None


def empty_redis(stage: Stage) -> Done:
    """Killed, and back with nothing."""
    redis = _redis(stage)
    redis.kill()
    shutil.rmtree(redis.folder)
    stage.bed.start_redis_again()
    stage.books.redis_losses.append(time.monotonic())
    return "Redis killed and started empty", None


def cut_file(stage: Stage) -> Done:
    """Killed, and back without its last writes."""
    redis = _redis(stage)
    redis.kill()
    file = max(redis.folder.rglob("*.aof"), key=lambda each: each.stat().st_size)
    size = file.stat().st_size
    lost = min(size // 2, stage.rng.randint(2_000, 40_000))
    os.truncate(file, size - lost)
    stage.bed.start_redis_again()
    stage.books.redis_losses.append(time.monotonic())
    return f"Redis killed and started without the last {lost} bytes of its file", None


def fail_over(stage: Stage) -> Done:
    """A replica takes over that has not seen the last writes."""
    bed, primary = stage.bed, _redis(stage)
    replica = bed.new_redis()
    replica.start()
    try:
        primary.ask("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        bed.wait_for("the replica is in step", lambda: _in_step(replica), STEP_SECONDS)
    except BaseException:
        replica.kill()
        raise
    replica.ask("REPLICAOF", "NO", "ONE")
    seconds = stage.rng.uniform(0.2, 1.5)
    time.sleep(seconds)  # and the old primary serves on
    bed.use_redis(replica)
    stage.books.redis_losses.append(time.monotonic())
    return f"a replica took over that had missed the last {seconds:.1f} s", None


def fill_redis(stage: Stage) -> Done:
    """Full, and nothing is thrown away."""
    redis = _redis(stage)
    seconds = stage.rng.uniform(2.0, 6.0)
    used = int(parse_info(redis.ask("INFO", "memory"))["used_memory"])
    redis.ask("CONFIG", "SET", "maxmemory", used - 200_000)
    return f"Redis full for {seconds:.1f} s", Lasting(seconds, lambda: _redis(stage).ask("CONFIG", "SET", "maxmemory", 0))


def flush_scripts(stage: Stage) -> Done:
    """Redis forgets the scripts in the midst of it all."""
    redis = _redis(stage)
    before = _sources_sent(redis)
    redis.ask("SCRIPT", "FLUSH")
    deadline = time.monotonic() + 5.0
    while _sources_sent(redis) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    if _sources_sent(redis) > before:
        stage.confirmed.add("NOSCRIPT recovered")
    return "Redis forgot its scripts", None


ACTS: Sequence[Act] = (
    Act("kill", kill),
    Act("kill-owner", kill_owner),
    Act("freeze", freeze),
    Act(
        "freeze-owner",
        freeze_owner,
        weight=3,
        leads_to=("a lease ended while its job was running", "a late commit was refused", "a late heartbeat was refused"),
    ),
    Act("rolling-restart", rolling_restart, leads_to=("the next version was read",)),
    Act("spare", spare, "sqs", leads_to=("a job was handed over",), hurts=False),
    Act("end-workers", end_workers, "redis", leads_to=("a job was handed over",)),
    Act("cut", cut),
    Act("shut", shut, weight=2, leads_to=("the relay held its place",)),
    Act("slow", slow),
    Act("lose-replies", lose_replies, leads_to=("an own write was recognised",)),
    Act("throttle", throttle, leads_to=("a throttled write was retried",)),
    Act("conflict", conflict, leads_to=("a transaction in conflict was retried",)),
    Act("fail-calls", fail_calls),
    Act("fail-entries", fail_entries, leads_to=("some entries of a batch failed", "an append failed")),
    Act("wrong-clocks", wrong_clocks, leads_to=("a clock was wrong",)),
    Act("burst", burst),
    Act("poison", poison, leads_to=("an unreadable record was quarantined", "a foreign message was quarantined")),
    Act(
        "duplicate", duplicate, leads_to=("a duplicate of an ended job collapsed", "a duplicate of a running job was put back")
    ),
    Act("rewind-log", rewind_log),
    Act("last-resort", last_resort, leads_to=("SQS' last resort was drained",)),
    Act("narrow-pace", narrow_pace, leads_to=("a job was parked", "a line of parked jobs was released")),
    Act("restart-redis", restart_redis, "redis"),
    Act("empty-redis", empty_redis, "redis", leads_to=("a loss of Redis was noticed", "a loss of Redis was repaired")),
    Act("cut-file", cut_file, "redis"),
    Act("fail-over", fail_over, "redis"),
    Act("fill-redis", fill_redis, "redis", leads_to=("a full Redis refused a ticket",)),
    Act("flush-scripts", flush_scripts, "redis", leads_to=("NOSCRIPT recovered",)),
)


def acts_for(bed: Bed) -> Sequence[Act]:
    """Those that this bed can be hurt by."""
    there = {"sqs": bed.sqs_queues, "redis": bed.redis_queues}
    return [act for act in ACTS if act.needs is None or there[act.needs]]


# --- pieces ----------------------------------------------------------------------------------------------------------


def _any_process(stage: Stage, among: Sequence[str] | None = None) -> tuple[str, int]:
    functions, spared = among or stage.bed.functions, stage.spared()
    alive = [(function, pid) for function in functions for pid in stage.bed.pids(function) if pid not in spared]
    if not alive:
        raise NotNow("every process is being started")
    return stage.rng.choice(alive)


def _owner(stage: Stage) -> int:
    """A worker that holds a job, if there is one a job that takes long: that will still be at it when it is stopped."""
    alive = set(_worker_pids(stage.bed)) - stage.spared()
    for at_least_seconds in (0.5, 0.0):
        if owners := sorted(set(stage.watch.running(at_least_seconds).values()) & alive):
            return stage.rng.choice(owners)
    raise NotNow("no worker holds a job")


def _is_replaced(bed: Bed, function: str, pid: int, strength: int) -> bool:
    alive = bed.pids(function)
    return pid not in alive and len(alive) >= strength


def _worker_pids(bed: Bed) -> Sequence[int]:
    return [pid for function in bed.functions if function not in (GATEWAY, RELAY, TIMERS) for pid in bed.pids(function)]


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _thaw(bed: Bed, pid: int) -> None:
    if any(pid in bed.pids(function) for function in bed.functions):
        _signal(pid, signal.SIGCONT)


def _any_door(stage: Stage) -> tuple[str, Door]:
    doors = stage.bed.doors
    choices = [("the ledger", doors.ledger), ("the log", doors.log)]
    choices += [("SQS", doors.sqs)] if stage.bed.sqs_queues else []
    choices += [("Redis", doors.redis)] * 2 if stage.bed.redis_queues else []
    return stage.rng.choice(choices)


def _open(bed: Bed, door: Door) -> None:
    if door is bed.doors.redis:
        assert bed.redis is not None
        door.lead_to(bed.redis.port, cut=False)
    else:
        door.lead_to(bed.emulator_port, cut=False)


def _order(bed: Bed, **changes: Any) -> None:
    bed.orders.give(msgspec.structs.replace(bed.orders.current_now(), **changes))


def _refusing(stage: Stage, refusals: dict[str, Refusal], what: str) -> Done:
    seconds = stage.rng.uniform(3.0, 6.0)
    _order(stage.bed, refused=refusals)
    return f"{what} for {seconds:.1f} s", Lasting(seconds, lambda: _order(stage.bed, refused={}))


def _stranger(rng: random.Random) -> Ticket:
    """A ticket of nobody's: of a version to come, or of a job that was never accepted."""
    number = rng.getrandbits(60)
    return Ticket(ticket_id=f"stranger-{number}", job_id=f"nobodys-{number}", tenant="local", v=rng.choice([1, 99]))


def _records_of(kinesis: Any, stream: str, shard: str) -> list[Record]:
    iterator = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    records: list[Record] = []
    while iterator:
        answer = kinesis.get_records(ShardIterator=iterator, Limit=1_000)
        records += [
            Record(each["SequenceNumber"], each["PartitionKey"], each["Data"], each.get("ApproximateArrivalTimestamp", _EPOCH))
            for each in answer["Records"]
        ]
        iterator = answer.get("NextShardIterator") if answer["Records"] else None
    return records


_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def _redis(stage: Stage) -> RedisServer:
    assert stage.bed.redis is not None
    return stage.bed.redis


def _in_step(replica: RedisServer) -> bool:
    told = parse_info(replica.ask("INFO", "replication"))
    return told["master_link_status"] == "up"


def _sources_sent(server: RedisServer) -> int:
    told: str = server.ask("INFO", "commandstats")
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in told.splitlines() if line.startswith("cmdstat_eval:"))
