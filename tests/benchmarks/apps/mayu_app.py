from mayu import App
from stamp import REDIS_PORT, make, stamp

app = App(broker=f"redis://127.0.0.1:{REDIS_PORT}/0")


@app.task(name="job")
def job(payload):
    stamp(payload)


class Producer:
    def one(self, number):
        job.send(make(number))
