import dramatiq
from dramatiq.brokers.redis import RedisBroker
from stamp import REDIS_PORT, make, stamp

dramatiq.set_broker(RedisBroker(host="127.0.0.1", port=REDIS_PORT))


@dramatiq.actor(max_retries=3)
def job(payload):
    stamp(payload)


class Producer:
    def one(self, number):
        job.send(make(number))
