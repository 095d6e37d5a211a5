"""Reads from the log, takes from the queues and ticks; records what it was given, and fails as the record says.

A record is JSON: ``{"id": …, "do": "pass" | "fail" | "raise" | "exit" | "hang", "times": n}``; it does so the first n times.
"""

import base64
import json
import os
import signal

from history import record, seen  # the layer's


def read(event, context):
    failures = []
    for item in event["Records"]:
        body = json.loads(base64.b64decode(item["kinesis"]["data"]))
        if not _went_well("read", body, len(event["Records"]), shard=item["eventID"].split(":")[0]):
            failures.append({"itemIdentifier": item["kinesis"]["sequenceNumber"]})
            break
    return {"batchItemFailures": failures}


def take(event, context):
    failed = [
        {"itemIdentifier": item["messageId"]}
        for item in event["Records"]
        if not _went_well(
            "take", json.loads(item["body"]), len(event["Records"]), queue=item["eventSourceARN"].rpartition(":")[2]
        )
    ]
    return {"batchItemFailures": failed}


def tick(event, context):
    record(how="tick", source=event["source"])


def _went_well(how, body, batch, **more):
    before = seen(how=how, id=body["id"])
    record(how=how, id=body["id"], batch=batch, **more)
    if before >= body.get("times", 1):
        return True
    match body.get("do", "pass"):
        case "fail":
            return False
        case "raise":
            raise RuntimeError(f"{body['id']} raises")
        case "exit":
            os._exit(7)
        case "hang":
            signal.pause()
    return True
