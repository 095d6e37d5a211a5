"""The Redis of `ringfence dev`: started with it, gone with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ringfence.local.redis_binaries import redis_server
from ringfence.local.redis_process import RedisProcess


class EmbeddedRedis:
    """A Redis on a free port of 127.0.0.1 that forgets everything when it ends. Nothing of it outlives this process.

    ``on_end(reason)`` is called, in another thread, when it ends without having been stopped.
    """

    def __init__(self, folder: Path, on_end: Callable[[str], None]) -> None:
        """``folder`` takes its log. Raises `NoRedis`."""
        self._process = RedisProcess(redis_server(), folder)
        self._on_end = on_end
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._fault: Exception | None = None
        self._keeper = threading.Thread(target=self._keep, name="redis", daemon=True)

    def start(self) -> None:
        """Start it and wait until it answers. Raises `RedisFailed`."""
        self._keeper.start()
        self._started.wait()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """End it, if it was started, and wait until it is gone."""
        self._stopping.set()
        if self._keeper.is_alive():
            self._started.wait()
            self._process.kill()
            self._keeper.join()

    def url(self, queue: str) -> str:
        """The URL of a queue here, as RINGFENCE_QUEUES wants it."""
        return f"redis://127.0.0.1:{self._process.port}/{queue}"

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """RINGFENCE_QUEUES of a function that is given it: the same names, here."""
        if "RINGFENCE_QUEUES" not in given:
            return {}
        return {"RINGFENCE_QUEUES": json.dumps({name: self.url(name) for name in json.loads(given["RINGFENCE_QUEUES"])})}

    @staticmethod
    def stands_in_for(queue_arn: str, given: Mapping[str, str]) -> bool:
        """Whether a queue on SQS is one of those that a function, which is given this, has here instead."""
        names = {url.rpartition("/")[2] for url in json.loads(given.get("RINGFENCE_QUEUES", "{}")).values()}
        return queue_arn.rpartition(":")[2] in names

    @property
    def pid(self) -> int:
        return self._process.pid

    def _keep(self) -> None:
        """Starts the process in a thread that lives as long as it does (see `tether`)."""
        try:
            self._process.start()
        except Exception as fault:  # noqa: BLE001 - raised in the thread that waits for it
            self._fault = fault
            return
        finally:
            self._started.set()
        code = self._process.wait()
        if not self._stopping.is_set():
            self._on_end(f"Redis ended with exit code {code}; see {self._process.log}")
