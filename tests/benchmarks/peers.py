"""The peers: how each is installed, set to lose no job when a worker is killed, and run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .environments import Environment, NodeEnvironment, PythonEnvironment

APPS = Path(__file__).with_name("apps")

_SHARED = PythonEnvironment(
    "redis-py",
    (
        "celery[redis]==5.7.0",
        "dramatiq[redis]==2.2.1",
        "hiredis==3.5.0",
        "huey==3.5.4",
        "orjson==3.13.0",
        "redis==8.1.0",
        "rq==3.0.0",
    ),
)
_NODE = NodeEnvironment("node", ("bee-queue@2.0.0", "bullmq@6.7.0", "ioredis@6.0.0"))


def _own(name: str, *packages: str, python: tuple[int, int] | None = None) -> PythonEnvironment:
    return PythonEnvironment(name, packages, python)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that takes jobs in and runs them, as the harness sees it."""

    name: str
    app: str
    """The module in ``apps/`` with the job and its producer; a ``.mjs`` file runs on Node."""
    work: tuple[str, ...]
    """The command of one worker process. ``{bin}`` is the environment's folder of programs, ``{port}`` the Redis's."""
    environment: Environment | None
    """None: the one that runs this."""
    jobs: int
    """In the backlog that one worker drains: some two seconds of work; two workers get twice as many."""
    paced_per_second: float = 50.0
    many: bool = True
    """Whether it can enqueue many at a time."""
    drained: bool = True
    enqueued: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    drain_variables: Mapping[str, str] = field(default_factory=dict)
    """Set while a backlog is drained, beside the others."""
    crash_safe: bool = True
    """Whether the job of a killed worker runs again."""


RINGFENCE = System(
    name="ringfence",
    app="ringfence_app",
    work=(str(Path(sys.executable).with_name("ringfence")), "worker", "-q", "bench", "--processes", "1"),
    environment=None,
    jobs=40_000,
)

_CELERY = ("{bin}/celery", "-A", "celery_app", "worker", "-c", "1", "-l", "ERROR")
_CELERY_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")
_MAYU = ("--mode", "thread", "--threads", "4", "--processes", "1", "--prefetch-multiplier", "32", "--log-level", "ERROR")
_TASKIQ = ("--workers", "1", "--ack-type", "when_executed", "--max-async-tasks", "100", "--max-prefetch", "100")

PEERS = (
    System(
        name="mayu",
        app="mayu_app",
        work=("{bin}/mayu", "worker", "mayu_app:app", *_MAYU),
        environment=_own("mayu", "mayu==0.2.5", "hiredis==3.5.0", "uvloop==0.23.0", python=(3, 13)),
        jobs=30_000,
        many=False,
    ),
    System(
        name="blitzq",
        app="blitzq_app",
        work=("{bin}/blitzq", "worker", "blitzq_app:queue", "-c", "200", "--log-level", "ERROR"),
        environment=_own("blitzq", "blitzq==1.1.0", "hiredis==3.5.0", "uvloop==0.23.0", python=(3, 13)),
        jobs=20_000,
    ),
    System(
        name="bee-queue",
        app="bee_queue.mjs",
        work=("node", str(APPS / "bee_queue.mjs"), "work"),
        environment=_NODE,
        jobs=20_000,
    ),
    System(
        name="ardiq",
        app="ardiq_app",
        work=("{bin}/ardiq", "run", "-q", "ardiq_app:app"),
        environment=_own("ardiq", "ardiq==1.2.0", "hiredis==3.5.0", "uvloop==0.23.0", python=(3, 13)),
        jobs=10_000,
    ),
    System(
        name="bullmq",
        app="bullmq.mjs",
        work=("node", str(APPS / "bullmq.mjs"), "work"),
        environment=_NODE,
        jobs=8_000,
    ),
    System(
        name="tarsk",
        app="tarsk_app",
        work=(
            *("{bin}/tarsk", "worker", "--app", "tarsk_app:app", "--broker", "redis://127.0.0.1:{port}/0"),
            *("--queues", "default", "--children", "1"),
        ),
        environment=_own("tarsk", "tarsk-redis==0.2.1"),
        jobs=6_000,
        many=False,
    ),
    System(
        name="huey",
        app="huey_app",
        work=("{bin}/huey_consumer", "huey_app.huey", "-w", "1", "-k", "thread", "-q"),
        environment=_SHARED,
        jobs=4_000,
        many=False,
        crash_safe=False,
    ),
    System(
        name="dramatiq",
        app="dramatiq_app",
        work=("{bin}/dramatiq", "dramatiq_app", "-p", "1", "-t", "8"),
        environment=_SHARED,
        jobs=4_000,
        many=False,
        variables={"dramatiq_queue_prefetch": "128"},
    ),
    System(
        name="taskiq",
        app="taskiq_app",
        work=("{bin}/taskiq", "worker", "taskiq_app:broker", *_TASKIQ, "--log-level", "ERROR"),
        environment=_own("taskiq", "taskiq[orjson]==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
        jobs=3_000,
    ),
    System(
        name="saq",
        app="saq_app",
        work=("{bin}/python", str(APPS / "saq_app.py")),
        environment=_own("saq", "saq[redis,hiredis]==0.26.4", "typing_extensions", "orjson==3.13.0", "uvloop==0.23.0"),
        jobs=1_500,
    ),
    System(
        name="arq",
        app="arq_app",
        work=("{bin}/arq", "arq_app.WorkerSettings"),
        environment=_own("arq", "arq[hiredis]==0.28.0", "uvloop==0.23.0", "msgpack==1.2.4"),
        jobs=1_500,
        drain_variables={"BENCH_POLL_SECONDS": "0.01"},
    ),
    System(
        name="celery solo",
        app="celery_app",
        work=(*_CELERY, "-P", "solo", *_CELERY_ALONE),
        environment=_SHARED,
        jobs=1_500,
        enqueued=False,
        variables={"BENCH_PREFETCH": "128"},
    ),
    System(
        name="streaq",
        app="streaq_app",
        work=("{bin}/streaq", "run", "streaq_app:worker"),
        environment=_own("streaq", "streaq==7.2.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        jobs=1_200,
    ),
    System(
        name="celery prefork",
        app="celery_app",
        work=(*_CELERY, "-P", "prefork", *_CELERY_ALONE),
        environment=_SHARED,
        jobs=800,
    ),
    System(
        name="rq simple",
        app="rq_app",
        work=("{bin}/rq", "worker", "-q", "-w", "rq.SimpleWorker", "-u", "redis://127.0.0.1:{port}", "bench"),
        environment=_SHARED,
        jobs=300,
    ),
    System(
        name="rq fork",
        app="rq_app",
        work=("{bin}/rq", "worker", "-q", "-u", "redis://127.0.0.1:{port}", "bench"),
        environment=_SHARED,
        jobs=80,
        paced_per_second=10.0,
        enqueued=False,
    ),
)

QUICK = ("mayu", "blitzq", "bee-queue")
"""The three that drained most jobs a second when all were measured."""
