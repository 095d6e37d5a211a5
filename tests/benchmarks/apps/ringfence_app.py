"""Ringfence's side: the job as a user writes it, and tickets pushed through the queue that the runtime builds."""

import os
import time

import msgspec
from stamp import make, stamp

from ringfence import App, Context
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.wire import Ticket

app = App()


@app.job("job")
def job(ctx: Context, id: int, enq: int, kind: str, to: str, tpl: str, n: int) -> None:
    stamp({"id": id, "enq": enq})


class Producer:
    def __init__(self):
        runtime = Runtime(Settings.from_environment(os.environ))
        self.queue, self.ids = runtime.queues["bench"], runtime.ids

    def one(self, number):
        self.push([self.ticket(number)])

    def many(self, numbers):
        self.push([self.ticket(number) for number in numbers])

    def push(self, tickets):
        if self.queue.push(tickets):
            raise SystemExit("Redis did not take every ticket")

    def ticket(self, number):
        """Of a job of guarantee at-least-once, as the relay makes it: the job rides in it."""
        return Ticket(
            ticket_id=self.ids.mark(),
            job_id=self.ids.job(),
            tenant="bench",
            name="job",
            payload=msgspec.json.encode(make(number)).decode(),
            max_attempts=5,
            created_at=time.time_ns() // 1_000_000,
        )
