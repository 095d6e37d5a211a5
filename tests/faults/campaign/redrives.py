"""Somebody who looks after the dead: every other job that died as it was to gets another payload and a second life."""

from __future__ import annotations

import threading
from itertools import count

from ringfence.client import Client
from ringfence.errors import Rejected, RingfenceError

from .books import Asked, Books
from .watch import Watch

LOOK_SECONDS = 0.5


class Redrives:
    """In a thread of its own, from `start` to `finish`."""

    def __init__(self, client: Client, books: Books, watch: Watch) -> None:
        self._client, self._books, self._watch = client, books, watch
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrives", daemon=True)
        self.fault: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for number in count():
                while (job_id := self._watch.next_doomed()) is None:
                    if self._over.wait(LOOK_SECONDS):
                        return
                if number % 2 == 0:
                    self._redrive(job_id)
        except BaseException as fault:  # noqa: BLE001 - raised again where the run is judged
            self.fault = fault

    def _redrive(self, job_id: str) -> None:
        promise = self._books.of_job(job_id)
        if promise is None:
            return
        # Before it is asked for: from now on the job may live.
        promise.redrive = Asked.PERHAPS
        try:
            self._client.redrive(job_id, {"key": promise.key, "mended": True})
            promise.redrive = Asked.DONE
        except Rejected as refusal:
            if refusal.status != 409:  # an earlier try did it
                self._books.contradicted(f"{promise.key} cannot be redriven: {refusal.status} {refusal}")
        except RingfenceError as fault:
            self._books.refused(type(fault).__name__)
