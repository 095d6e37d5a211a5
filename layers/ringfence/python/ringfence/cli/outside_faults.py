"""What comes from outside (the environment, AWS's SDK, the file system) as the commands' own errors: one line each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ringfence.cli.standard_streams import OutputLost
from ringfence.errors import RingfenceError, Unavailable


@contextmanager
def named() -> Iterator[None]:
    """Let nothing out that only a traceback could tell, unless it is a bug."""
    try:
        yield
    except OutputLost:
        raise
    except UnicodeEncodeError:
        raise click.UsageError("an argument is not UTF-8") from None
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        raise RingfenceError(f"{where}{fault.strerror or fault}") from None
    except Unavailable as fault:
        cause = fault.__cause__
        if isinstance(cause, Exception) and (said := _of_the_sdk(cause)) is not None:
            raise Unavailable(f"{fault} ({said})", retry_after_seconds=fault.retry_after_seconds) from None
        raise
    except Exception as fault:
        told = _of_the_sdk(fault)
        if told is None:
            raise
        raise told from None


def _of_the_sdk(fault: Exception) -> RingfenceError | None:
    """None for what is not the SDK's. It is asked only if somebody has loaded it: most commands do without."""
    if "botocore" not in sys.modules:
        return None
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoRegionError
    from botocore.parsers import ResponseParserError

    match fault:
        case HTTPClientError():
            return Unavailable(str(fault))
        case NoRegionError():
            return RingfenceError("no region: set AWS_REGION to that of the ledger table")
        case BotoCoreError() | ClientError():
            return RingfenceError(str(fault))
        case ResponseParserError():
            return RingfenceError("what answers at the endpoint's address is not AWS, nor an emulator of it")
        case ValueError() if str(fault).startswith("Invalid endpoint"):  # of botocore.endpoint: a URL, or a region in its name
            return RingfenceError(f"{fault} (AWS_ENDPOINT_URL, AWS_REGION or the AWS configuration file names it)")
    return None
