"""The front door of the test application: shows what it was given, and misbehaves when asked to."""

import base64
import json
import os
import time

from history import record, seen  # the layer's


def handler(event, context):
    path = event["rawPath"]
    if path == "/fail":
        raise ValueError("as asked")
    if path == "/exit":
        os._exit(3)
    if path == "/bad":
        return {"statusCode": "teapot"}
    if path == "/sleep":
        time.sleep(float(event["queryStringParameters"]["seconds"]))
    if path == "/meet":
        wanted = event["queryStringParameters"]
        record(how="meet", name=wanted["name"])
        while seen(how="meet", name=wanted["name"]) < int(wanted["count"]):
            time.sleep(0.005)
    if path == "/size":
        return {"statusCode": 200, "body": str(len(event["body"]))}
    if path == "/binary":
        return {
            "statusCode": 201,
            "isBase64Encoded": True,
            "body": base64.b64encode(b"\x00\xff").decode(),
            "cookies": ["a=1", "b=2"],
        }
    if path == "/environment":
        return dict(os.environ)
    if path == "/context":
        return {
            "pid": os.getpid(),
            "remaining": context.get_remaining_time_in_millis(),
            "request_id": context.aws_request_id,
            "arn": context.invoked_function_arn,
            "name": context.function_name,
            "memory": context.memory_limit_in_mb,
        }
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}
