"""CPU time of the relay's process from a Kinesis event to pushed tickets: ``relay_cost.py TURNS BATCH …``.

As the function runs it, from its environment, but for the settings of queues, which are in memory. Prints, as its last line, a
JSON object: for each size of a batch the CPU microseconds per ticket, one for each turn.
"""

import base64
import json
import os
import sys
import time

from ringfence.aws.events import reads_from_event
from ringfence.ids import RandomIds
from ringfence.memory.queue_settings import MemorySettings
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.wire import JobRecord, encode_records

TURN_TICKETS = 1_000
"""At least so many in each turn, in as many events as it takes."""

PAYLOAD = '{"id":12345,"kind":"email.send","to":"user@example.com","tpl":"welcome-42","n":7}'


def event_of(jobs):
    """What Lambda hands over: records of at most 100 jobs each."""
    ids = RandomIds()
    records = [
        JobRecord(
            job_id=ids.job(),
            tenant="bench",
            queue="bench",
            name="job",
            payload=PAYLOAD,
            payload_sha256="0" * 64,
            created_at=1_700_000_000_000,
            max_attempts=5,
        )
        for _ in range(jobs)
    ]
    return {
        "Records": [
            {
                "eventID": f"shardId-000000000000:{number}",
                "kinesis": {"sequenceNumber": str(number), "data": base64.b64encode(data).decode()},
            }
            for number, (data, _) in enumerate(encode_records(records))
        ]
    }


def main():
    settings = MemorySettings()
    runtime = Runtime(Settings.from_environment(os.environ), lambda name, port: settings if name == "settings" else port)
    turns, *sizes = (int(number) for number in sys.argv[1:])
    events = {size: event_of(size) for size in sizes}
    taken = {size: [] for size in sizes}

    def relay(event):
        if runtime.relay.handle(reads_from_event(event)) is not None:
            raise SystemExit("not every ticket was taken")

    relay(events[1_000])
    for turn in range(turns):
        for size in sizes if turn % 2 else sizes[::-1]:
            times = max(1, TURN_TICKETS // size)
            began = time.process_time()
            for _ in range(times):
                relay(events[size])
            taken[size].append((time.process_time() - began) / (times * size) * 1e6)
    sys.stdout.write(json.dumps(taken) + "\n")


main()
