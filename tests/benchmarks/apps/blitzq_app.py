from blitzq import Queue
from stamp import REDIS_PORT, make, stamp

queue = Queue(name="bench", redis_url=f"redis://127.0.0.1:{REDIS_PORT}/0", store_results=False)


@queue.task
async def job(payload):
    stamp(payload)


class Producer:
    async def one(self, number):
        await job.enqueue(make(number))

    async def many(self, numbers):
        await job.enqueue_many([(make(number),) for number in numbers])
