"""How a command reaches the deployment itself, with AWS credentials and without the API."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ringfence.errors import RingfenceError, Unavailable

if TYPE_CHECKING:
    from ringfence.runtime import Runtime

EMULATOR_REGION = "us-east-1"
"""Where `ringfence dev` is when nobody names a region."""

table_option = click.option(
    "--table", envvar="RINGFENCE_LEDGER_TABLE", show_envvar=True, required=True, help="The ledger table of the deployment."
)
endpoint_option = click.option(
    "--endpoint-url", envvar="AWS_ENDPOINT_URL", show_envvar=True, help="An emulator instead of AWS."
)


def runtime_of(table: str, endpoint_url: str | None, environment: Mapping[str, str] | None = None) -> Runtime:
    """The deployment with this ledger table. ``environment`` may say more of it, by the variables that its functions have."""
    from ringfence.runtime import Runtime
    from ringfence.settings import Settings

    if endpoint_url:
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # where boto3 looks
    with aws_errors():
        _settle_region(emulator=bool(endpoint_url))
    unneeded = {"RINGFENCE_STREAM": "none"}
    return Runtime(Settings.from_environment({**unneeded, **(environment or {}), "RINGFENCE_LEDGER_TABLE": table}))


def _settle_region(*, emulator: bool) -> None:
    """boto3 looks at AWS_DEFAULT_REGION and at the profile; Lambda, and so `ringfence dev`, set AWS_REGION as well."""
    if os.environ.get("AWS_DEFAULT_REGION"):
        return
    import boto3

    region = os.environ.get("AWS_REGION") or boto3.session.Session().region_name or (EMULATOR_REGION if emulator else None)
    if region:
        os.environ["AWS_DEFAULT_REGION"] = region


@contextmanager
def aws_errors() -> Iterator[None]:
    """What AWS says about credentials, regions and tables, as the command's own errors."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoRegionError

    try:
        yield
    except HTTPClientError as fault:
        raise Unavailable(str(fault)) from None
    except NoRegionError:
        raise RingfenceError("no region: set AWS_REGION to that of the ledger table") from None
    except (BotoCoreError, ClientError) as fault:
        raise RingfenceError(str(fault)) from None
