import logging

from stamp import REDIS_PORT, make, stamp
from streaq import Worker

logging.disable(logging.INFO)
worker = Worker(redis_url=f"redis://127.0.0.1:{REDIS_PORT}", concurrency=64, anyio_kwargs={"use_uvloop": True})


@worker.task(ttl=0)
async def job(payload: dict) -> None:
    stamp(payload)


class Producer:
    async def start(self):
        await worker.__aenter__()

    async def one(self, number):
        await job.enqueue(make(number))

    async def many(self, numbers):
        await worker.enqueue_many([job.enqueue(make(number)) for number in numbers])

    async def stop(self):
        await worker.__aexit__(None, None, None)
