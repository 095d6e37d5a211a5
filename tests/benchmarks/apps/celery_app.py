import os

from celery import Celery
from stamp import REDIS_PORT, make, stamp

app = Celery("celery_app", broker=f"redis://127.0.0.1:{REDIS_PORT}/0")
app.conf.update(
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    task_acks_late=True,
    worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "4")),  # 4 is Celery's default
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="bench.job")
def job(payload):
    stamp(payload)


class Producer:
    def one(self, number):
        job.delay(make(number))

    def many(self, numbers):
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                job.apply_async((make(number),), producer=producer)
