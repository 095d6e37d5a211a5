import logging

from huey import RedisHuey
from stamp import REDIS_PORT, make, stamp

logging.getLogger("huey").setLevel(logging.ERROR)
huey = RedisHuey("bench", host="127.0.0.1", port=REDIS_PORT, results=False, store_none=False)


@huey.task()
def job(payload):
    stamp(payload)


class Producer:
    def one(self, number):
        job(make(number))
