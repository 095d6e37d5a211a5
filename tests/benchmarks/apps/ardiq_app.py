from ardiq import Ardiq
from stamp import REDIS_PORT, make, stamp

app = Ardiq(redis_url=f"redis://127.0.0.1:{REDIS_PORT}", queue_name="bench", concurrency=100)


@app.task()
async def job(payload):
    stamp(payload)


class Producer:
    async def one(self, number):
        await job.enqueue(make(number))

    async def many(self, numbers):
        await app.enqueue_many([job.prepare(make(number)) for number in numbers])
