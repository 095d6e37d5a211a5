import asyncio
import logging
import os

from arq import create_pool
from arq.connections import RedisSettings
from stamp import REDIS_PORT, make, stamp

logging.disable(logging.INFO)
SETTINGS = RedisSettings(host="127.0.0.1", port=REDIS_PORT)


async def job(ctx, payload):
    stamp(payload)


class WorkerSettings:
    functions = (job,)
    redis_settings = SETTINGS
    keep_result = 0
    max_jobs = 100
    poll_delay = float(os.environ.get("BENCH_POLL_SECONDS", "0.5"))  # 0.5 is arq's default


class Producer:
    async def start(self):
        self.pool = await create_pool(SETTINGS)

    async def one(self, number):
        await self.pool.enqueue_job("job", make(number))

    async def many(self, numbers):
        await asyncio.gather(*[self.one(number) for number in numbers])
