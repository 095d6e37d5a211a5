import asyncio
import logging

from stamp import REDIS_PORT, make, stamp
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

logging.disable(logging.INFO)
broker = RedisStreamBroker(f"redis://127.0.0.1:{REDIS_PORT}", consumer_id="0").with_serializer(ORJSONSerializer())


@broker.task(task_name="job")
async def job(payload: dict) -> None:
    stamp(payload)


class Producer:
    async def start(self):
        await broker.startup()

    async def one(self, number):
        await job.kiq(make(number))

    async def many(self, numbers):
        await asyncio.gather(*[self.one(number) for number in numbers])

    async def stop(self):
        await broker.shutdown()
