from stamp import REDIS_PORT, make, stamp
from tarsk import App

app = App(broker=f"redis://127.0.0.1:{REDIS_PORT}/0")


@app.task(retries=3, timeout=30)
def job(payload: dict):
    stamp(payload)


class Producer:
    def one(self, number):
        job.send(make(number))
