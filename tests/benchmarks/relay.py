"""What a ticket costs the relay, on SQS and on Redis, in batches of all sizes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from .ground import BenchFailed, Ground
from .peers import APPS

BATCHES = (10, 100, 1_000, 10_000)
TYPICAL_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class RelayCost:
    """CPU microseconds per ticket, by the jobs in a batch: median of some turns."""

    us_per_ticket: Mapping[int, float]

    @property
    def tickets_per_cpu_second(self) -> float:
        return 1e6 / self.us_per_ticket[TYPICAL_BATCH]

    @property
    def growth(self) -> float:
        """What a ticket costs in the largest batch over what it costs in one a tenth of it: 1 if the work grows linearly."""
        return self.us_per_ticket[BATCHES[-1]] / self.us_per_ticket[BATCHES[-2]]


def relay_to_redis(ground: Ground) -> RelayCost:
    ground.clear()
    try:
        return _cost(ground, 7, ground.server.url("bench"), {})
    finally:
        ground.clear()


def relay_to_sqs(ground: Ground) -> RelayCost:
    """Against a stub that answers at once, through boto3 and a socket."""
    with _sqs_stub() as port:
        endpoint = f"http://127.0.0.1:{port}"
        return _cost(ground, 3, f"{endpoint}/000000000000/bench", {"AWS_ENDPOINT_URL_SQS": endpoint})


def _cost(ground: Ground, turns: int, url: str, variables: Mapping[str, str]) -> RelayCost:
    environment = {
        **os.environ,
        "RINGFENCE_QUEUES": json.dumps({"bench": url}),
        "RINGFENCE_LEDGER_TABLE": "none",
        "RINGFENCE_STREAM": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        **variables,
    }
    command = [sys.executable, str(APPS / "relay_cost.py"), *map(str, (turns, *BATCHES))]
    done = subprocess.run(command, env=environment, cwd=ground.folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise BenchFailed(f"the relay failed: {done.stderr.strip()[-500:]}")
    turns = json.loads(done.stdout.splitlines()[-1])
    return RelayCost({int(size): statistics.median(taken) for size, taken in turns.items()})


@contextmanager
def _sqs_stub() -> Iterator[int]:
    stub = subprocess.Popen([sys.executable, str(APPS / "sqs_stub.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert stub.stdout is not None
        yield int(stub.stdout.readline())
    finally:
        stub.kill()
        stub.wait()
