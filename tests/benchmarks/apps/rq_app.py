import redis
from rq import Queue
from stamp import REDIS_PORT, make, stamp


def job(payload):
    stamp(payload)


class Producer:
    def __init__(self):
        self.queue = Queue("bench", connection=redis.Redis(port=REDIS_PORT))

    def one(self, number):
        self.queue.enqueue(job, make(number), result_ttl=0)

    def many(self, numbers):
        self.queue.enqueue_many([Queue.prepare_data(job, args=(make(number),), result_ttl=0) for number in numbers])
