"""Where the systems run: a Redis of its own, the files their jobs write to, and how their workers and producers are started."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from ringfence.local.redis_binaries import redis_server
from ringfence.testing.redis_server import RedisServer

from .peers import APPS, System
from .processes import Program

PRODUCE_SECONDS = 300
_RECORD, _STARTED = struct.Struct("<qqqq"), struct.Struct("<q")


class BenchFailed(Exception):
    """A system did not do what was to be measured."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """That a job began, in nanoseconds of the monotonic clock."""

    started: int
    enqueued: int
    number: int
    worker: int


class Ground:
    """``with Ground() as ground:``; the Redis writes nothing to disk, and everything is gone afterwards."""

    def __enter__(self) -> Ground:
        self._folder = tempfile.TemporaryDirectory(prefix="ringfence-bench-")
        self.folder = Path(self._folder.name)
        in_memory = Path("/dev/shm")
        self._stamps = tempfile.TemporaryDirectory(prefix="ringfence-bench-", dir=in_memory if in_memory.is_dir() else None)
        self.stamps_folder = Path(self._stamps.name)
        self._seen: dict[Path, int] = {}
        self.server = RedisServer(redis_server(), self.folder / "redis")
        self.server.start()
        self.redis = redis.Redis(port=self.server.port, protocol=2)
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()
        self.server.kill()
        self._stamps.cleanup()
        self._folder.cleanup()

    def clear(self) -> None:
        self.redis.flushall()
        for file in self.stamps_folder.iterdir():
            file.unlink()
        self._seen.clear()

    def redis_cpu_seconds(self) -> float:
        used = self.redis.info("cpu")
        return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])

    def variables(self, system: System) -> dict[str, str]:
        """The environment variables that the apps of a system read."""
        own: dict[str, str] = {}
        if system.environment is None:
            own = {
                "RINGFENCE_QUEUES": json.dumps({"bench": self.server.url("bench")}),
                "RINGFENCE_APP": f"{system.app}:app",
                # Required of every deployment; a job without a row never meets them.
                "RINGFENCE_LEDGER_TABLE": "none",
                "RINGFENCE_STREAM": "none",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "none",
                "AWS_SECRET_ACCESS_KEY": "none",
            }
        elif system.app.endswith(".mjs"):
            own = {"BENCH_NODE_MODULES": str(system.environment.place())}
        return {
            "BENCH_REDIS_PORT": str(self.server.port),
            "PYTHONPATH": str(APPS),
            "PYTHONDONTWRITEBYTECODE": "1",
            **own,
            **system.variables,
        }

    def produce(self, system: System, mode: str, *amounts: float) -> dict[str, Any]:
        """Run the system's producer; see ``apps/produce.py``. Returns what it tells."""
        if system.app.endswith(".mjs"):
            program = ["node", str(APPS / system.app)]
        else:
            program = [str(_bin(system) / "python"), str(APPS / "produce.py"), system.app]
        command = [*program, mode, *(f"{amount:g}" for amount in amounts)]
        environment = {**os.environ, **self.variables(system)}
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=PRODUCE_SECONDS, check=False
        )
        if done.returncode:
            raise BenchFailed(f"the producer of {system.name} failed: {_end(done.stderr)}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    @contextmanager
    def working(self, system: System, workers: int, variables: dict[str, str] | None = None) -> Iterator[list[Program]]:
        """So many worker processes of a system at work."""
        command = [part.format(bin=_bin(system), port=self.server.port) for part in system.work]
        with self._log(system).open("wb") as log:
            programs: list[Program] = []
            try:
                for number in range(workers):
                    own = {"BENCH_STAMPS": str(self.stamps_folder), "BENCH_WORKER": str(number)}
                    programs.append(Program(command, {**self.variables(system), **(variables or {}), **own}, self.folder, log))
                yield programs
            finally:
                for program in programs:
                    program.stop()

    def end_of_log(self, system: System) -> str:
        return _end(self._log(system).read_text(errors="replace"))

    def stamped(self) -> int:
        """How many jobs have begun."""
        for file in self.stamps_folder.iterdir():
            self._seen[file] = _last(file, self._seen.get(file, 0))
        return sum(self._seen.values())

    def stamps(self) -> list[Stamp]:
        """In the order of their starts."""
        self.stamped()
        found: list[Stamp] = []
        for file, count in self._seen.items():
            with file.open("rb") as opened:
                found += (Stamp(*each) for each in _RECORD.iter_unpack(opened.read(count * _RECORD.size)))
        return sorted(found, key=lambda stamp: stamp.started)

    def _log(self, system: System) -> Path:
        return self.folder / f"{system.name}.log"


def _last(file: Path, count: int) -> int:
    """How many records a file has, being at least ``count``: behind the last one there is nothing, or there are zeros."""
    with file.open("rb") as opened:
        opened.seek(count * _RECORD.size)
        while len(records := opened.read(1024 * _RECORD.size)) >= _RECORD.size:
            whole = len(records) // _RECORD.size
            written = next(
                (index for index in range(whole) if not any(_STARTED.unpack_from(records, index * _RECORD.size))), whole
            )
            count += written
            if written < 1024:
                break
    return count


def by_worker(stamps: list[Stamp]) -> dict[int, list[Stamp]]:
    found: defaultdict[int, list[Stamp]] = defaultdict(list)
    for stamp in stamps:
        found[stamp.worker].append(stamp)
    return dict(found)


def _bin(system: System) -> Path:
    return Path(sys.executable).parent if system.environment is None else system.environment.place() / "bin"


def _end(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-4:])
