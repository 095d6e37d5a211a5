"""Count what a Python source file in the bucket holds, and add it to the totals of its package."""

from __future__ import annotations

import os
import posixpath
from contextlib import closing
from dataclasses import asdict
from typing import Annotated

from botocore.exceptions import ClientError
from msgspec import Meta

from jobs.module_counts import MAX_SOURCE_BYTES, Unparseable, count_module, package_of
from jobs.registry import app
from ringfence import Context, Dead
from ringfence.aws.clients import client

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
Key = Annotated[str, Meta(min_length=1, max_length=1024)]


@app.job("index_module", lease="5s", timeout="1m")
def index_module(ctx: Context, key: Key) -> dict[str, int]:
    """One row of counts, and the same counts added to a total.

    Adding is the very thing that must not happen twice, and nothing here guards against it: both rows commit with the job's
    success in one transaction, so a crash leaves neither, and a worker that was taken for dead cannot add again. A file that
    is indexed by a second *job* counts again; ``times_indexed`` would show it.
    """
    source = _read(key)
    try:
        counts = asdict(count_module(source, posixpath.basename(key)))
    except Unparseable as fault:
        raise Dead(f"{key} cannot be parsed: {fault}") from None
    package = package_of(key)
    ctx.effects.update("Modules", {"module": key}, set={"package": package, **counts}, add={"times_indexed": 1})
    ctx.effects.update("PackageTotals", {"package": package}, add={"modules": 1, **counts})
    return counts


def _read(key: str) -> bytes:
    """The file's bytes, or one more than would be parsed."""
    s3 = client("s3")
    try:
        found = s3.get_object(Bucket=os.environ["RINGFENCE_BUCKET"], Key=key)
    except s3.exceptions.NoSuchKey:
        raise Dead(f"there is no {key} in the bucket") from None
    except ClientError as fault:
        if fault.response["Error"]["Code"] != "AccessDenied":
            raise
        raise Dead(f"{key} is not among the files that jobs may read") from None
    with closing(found["Body"]) as body:
        source: bytes = body.read(MAX_SOURCE_BYTES + 1)
    return source
