"""The producers' side of a benchmark, in one process: ``produce.py APP one N | many N | paced RATE SECONDS``.

The module APP has a class `Producer`, whose ``one(number)`` enqueues a job and whose ``many(numbers)`` enqueues some in the
quickest way that the library documents. Both may be coroutines; then ``start()`` and ``stop()`` may be as well. Prints a JSON
object: the jobs that were timed, those before them, and the seconds of wall and CPU time.
"""

import asyncio
import importlib
import inspect
import json
import sys
import time

WARM = 100
"""Jobs enqueued before the clock starts."""

PACED_WARM = 20
CHUNK = 500
"""Jobs in one call of ``many``."""


def tell(jobs, before, seconds=0.0, cpu_seconds=0.0):
    told = {"jobs": jobs, "before": before, "seconds": seconds, "cpu_seconds": cpu_seconds}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


class Clocks:
    def __enter__(self):
        self.wall, self.cpu = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu = time.monotonic() - self.wall, time.process_time() - self.cpu


def beats(rate, seconds):
    """Yields (number, seconds to sleep before it)."""
    due = time.monotonic()
    for number in range(int(rate * seconds)):
        due += 1 / rate
        yield number, max(0.0, due - time.monotonic())


def run_blocking(producer, mode, amount, seconds):
    if mode == "paced":
        for number in range(PACED_WARM):
            producer.one(-1 - number)
            time.sleep(0.01)
        time.sleep(1.0)
        for number, pause in beats(amount, seconds):
            time.sleep(pause)
            producer.one(number)
        tell(int(amount * seconds), PACED_WARM)
        return
    for number in range(WARM):
        producer.one(number)
    numbers = range(WARM, WARM + int(amount))
    with Clocks() as taken:
        if mode == "one":
            for number in numbers:
                producer.one(number)
        else:
            for start in range(0, len(numbers), CHUNK):
                producer.many(numbers[start : start + CHUNK])
    tell(len(numbers), WARM, taken.wall, taken.cpu)


async def run_async(producer, mode, amount, seconds):
    if hasattr(producer, "start"):
        await producer.start()
    if mode == "paced":
        for number in range(PACED_WARM):
            await producer.one(-1 - number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        for number, pause in beats(amount, seconds):
            await asyncio.sleep(pause)
            await producer.one(number)
        tell(int(amount * seconds), PACED_WARM)
    else:
        for number in range(WARM):
            await producer.one(number)
        numbers = range(WARM, WARM + int(amount))
        with Clocks() as taken:
            if mode == "one":
                for number in numbers:
                    await producer.one(number)
            else:
                for start in range(0, len(numbers), CHUNK):
                    await producer.many(numbers[start : start + CHUNK])
        tell(len(numbers), WARM, taken.wall, taken.cpu)
    if hasattr(producer, "stop"):
        await producer.stop()


def main():
    app, mode, amount = sys.argv[1], sys.argv[2], float(sys.argv[3])
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    producer = importlib.import_module(app).Producer()
    if not inspect.iscoroutinefunction(producer.one):
        run_blocking(producer, mode, amount, seconds)
        return
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    run(run_async(producer, mode, amount, seconds))


if __name__ == "__main__":
    main()
