"""How a command reaches the deployment itself, with AWS credentials and without the API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ringfence.cli.endpoint_option import ENDPOINT_URL

if TYPE_CHECKING:
    from ringfence.runtime import Runtime

EMULATOR_REGION = "us-east-1"
"""Where `ringfence dev` is when nobody names a region."""

NO_TABLE = "none"
"""For `runtime_of`, by commands that do without the ledger."""

table_option = click.option(
    "--table", envvar="RINGFENCE_LEDGER_TABLE", show_envvar=True, required=True, help="The ledger table of the deployment."
)
endpoint_option = click.option(
    "--endpoint-url", type=ENDPOINT_URL, envvar="AWS_ENDPOINT_URL", show_envvar=True, help="An emulator instead of AWS."
)


def runtime_of(table: str, endpoint_url: str | None, environment: Mapping[str, str] | None = None) -> Runtime:
    """The deployment with this ledger table. ``environment`` may say more of it, by the variables that its functions have."""
    from ringfence.runtime import Runtime
    from ringfence.settings import Settings

    if endpoint_url:
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # where boto3 looks
    forget_blank_variables()
    _settle_region(emulator=bool(endpoint_url))
    needed = {
        "RINGFENCE_STREAM": "none",
        **{name: value for name, value in os.environ.items() if name.startswith(("AWS_", "LOCALSTACK_"))},
    }
    return Runtime(Settings.from_environment({**needed, **(environment or {}), "RINGFENCE_LEDGER_TABLE": table}))


def forget_blank_variables() -> None:
    """A variable that is set to nothing says nothing. boto3 would take it for a region or a profile without a name."""
    for name in [name for name, value in os.environ.items() if name.startswith("AWS_") and not value]:
        del os.environ[name]


def _settle_region(*, emulator: bool) -> None:
    """boto3 looks at AWS_DEFAULT_REGION and at the profile; Lambda, and so `ringfence dev`, set AWS_REGION as well."""
    if os.environ.get("AWS_DEFAULT_REGION"):
        return
    import boto3

    region = os.environ.get("AWS_REGION") or boto3.session.Session().region_name or (EMULATOR_REGION if emulator else None)
    if region:
        os.environ["AWS_DEFAULT_REGION"] = region
