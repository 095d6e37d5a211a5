import asyncio
import logging

import uvloop
from saq import Queue, Worker
from stamp import REDIS_PORT, make, stamp

logging.disable(logging.INFO)


async def job(ctx, *, payload):
    stamp(payload)


def queue():
    return Queue.from_url(f"redis://127.0.0.1:{REDIS_PORT}", name="bench")


class Producer:
    async def start(self):
        self.queue = queue()
        await self.queue.connect()

    async def one(self, number):
        await self.queue.enqueue("job", payload=make(number), ttl=-1)

    async def many(self, numbers):
        await asyncio.gather(*[self.one(number) for number in numbers])

    async def stop(self):
        await self.queue.disconnect()


async def work():
    await Worker(queue(), functions=[job], concurrency=50).start()


if __name__ == "__main__":
    uvloop.run(work())
