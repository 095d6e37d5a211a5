"""A reply that was cut short is no answer.

botocore takes a reply without a body for one that says nothing. So of a connection that broke among the headers, `GetItem`
would tell that there is no such row, and a refused condition would be a fault without a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_CUT = json.dumps({"__type": "ReplyCut", "message": "the reply ended before it was whole"}).encode()


def refuse_cut(client: Any) -> None:
    """Make this boto3 client take a cut reply for a fault of the service: tried again, and then an error 500, ``ReplyCut``.

    Only of the JSON protocols, whose every answer that has something to say has a body.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
    """
    service = client.meta.service_model
    if service.resolved_protocol == "json":
        service_id = service.service_id.hyphenize()
        client.meta.events.register(f"before-parse.{service_id}", _before_parse)
        client.meta.events.register_first(f"needs-retry.{service_id}", _needs_retry)


def _before_parse(operation_model: Any, response_dict: dict[str, Any], **_more: Any) -> None:
    status = response_dict["status_code"]
    silent = status < 300 and not (operation_model.output_shape and operation_model.output_shape.members)
    if not silent and not _is_whole(response_dict["headers"], response_dict["body"]):
        response_dict["status_code"], response_dict["body"] = 500, _CUT


def _needs_retry(response: tuple[Any, dict[str, Any]] | None, **_more: Any) -> None:
    """botocore's retries look at the status as it was received."""
    if response is not None and response[1].get("Error", {}).get("Code") == "ReplyCut":
        response[0].status_code = 500


def _is_whole(headers: Mapping[str, str], body: bytes) -> bool:
    if not body:
        return False
    if (length := headers.get("content-length")) is not None:
        return length == str(len(body))
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
