"""`ringfence dev` with its queues on Redis: from a request to a ticket that a worker takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from ringfence.aws import clients
from ringfence.cli.main import main
from ringfence.job import State
from ringfence.local.dev import Dev
from ringfence.local.embedded_redis import EmbeddedRedis
from ringfence.local.redis_process import RedisFailed, RedisProcess
from ringfence.redis.queue import RedisQueue
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.wire import decode_ticket

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(redis_dev: Dev, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A worker's core in this process, told where everything is by what `ringfence dev` tells."""
    environment = redis_dev.environment()
    for name, value in environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    clients.forget()
    yield Runtime(Settings.from_environment({**environment, "RINGFENCE_APP": "jobs:app"}))
    clients.forget()


def submit(dev: Dev, email: str) -> str:
    body = json.dumps({"name": "signup", "queue": "priority", "payload": {"email": email, "name": "Ada"}}).encode()
    request = urllib.request.Request(f"{dev.api_url}/v1/jobs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["job_id"])


def test_a_job_goes_through_redis_to_whoever_takes_it(redis_dev: Dev, here: Runtime) -> None:
    job_id = submit(redis_dev, "ada@example.com")
    queue = here.queues["priority"]
    assert isinstance(queue, RedisQueue)
    leases = queue.lease(10, 30, wait_seconds=30)
    assert len(leases) == 1
    queue.acknowledge(here.worker.handle(queue, leases))

    job = here.ledger.get(job_id)
    assert job is not None
    assert job.state is State.SUCCEEDED, job.error
    assert queue.depth().ready == queue.depth().leased == 0


def test_what_redis_forgets_the_timers_push_again(redis_dev: Dev, here: Runtime) -> None:
    queue = here.queues["priority"]
    eventually(lambda: "priority" in here.sweeps.read().marks)
    job_id = submit(redis_dev, "bob@example.com")
    eventually(lambda: queue.depth().ready == 1)
    with redis.Redis.from_url(here.settings.queues["priority"].rpartition("/")[0]) as server:
        server.flushall()
    assert reconcile_dry(redis_dev) == {"priority": {"jobs": 1, "renewed": 0, "fault": None}}

    leases = queue.lease(10, 30, wait_seconds=30)
    assert [decode_ticket(lease.body).job_id for lease in leases] == [job_id]
    queue.acknowledge(here.worker.handle(queue, leases))
    job = here.ledger.get(job_id)
    assert job is not None
    assert job.state is State.SUCCEEDED
    assert reconcile_dry(redis_dev) == {}


def reconcile_dry(dev: Dev) -> Any:
    """The jobs that `ringfence reconcile` would give new tickets."""
    result = CliRunner().invoke(main, ["reconcile", "--older-than", "0s", "--dry-run", "--json"], env=dev.environment())
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["queues"]


def test_the_redis_that_is_started_forgets_everything_and_is_gone(tmp_path: Path) -> None:
    embedded = EmbeddedRedis(tmp_path, lambda _reason: None)
    embedded.start()
    pid = embedded.pid
    embedded.stop()

    assert not alive(pid)
    assert [path.name for path in tmp_path.iterdir()] == ["redis.log"]


def test_a_redis_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    embedded = EmbeddedRedis(tmp_path, told.put)
    embedded.start()
    os.kill(embedded.pid, signal.SIGKILL)

    assert "Redis ended" in told.get(timeout=20)
    embedded.stop()


def test_a_redis_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = RedisProcess(Path(sys.executable), tmp_path)
    with pytest.raises(RedisFailed, match="did not start"):
        broken.start()


STARTS_AND_HANGS = """
import sys
from pathlib import Path
from ringfence.local.embedded_redis import EmbeddedRedis
redis = EmbeddedRedis(Path(sys.argv[1]), print)
redis.start()
print(redis.pid, flush=True)
sys.stdin.read()
"""


def test_the_redis_does_not_outlive_whoever_started_it(tmp_path: Path) -> None:
    """Not even a SIGKILL, which gives nobody time to tidy up."""
    library = ROOT / "layers" / "ringfence" / "python"
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_HANGS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    eventually_gone(pid)


def eventually_gone(pid: int) -> None:
    eventually(lambda: not alive(pid))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return sys.platform != "linux" or b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False
