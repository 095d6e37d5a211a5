"""What every command that talks to the API has in common: where it is, the key, ``--json``, and how errors end it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ringfence.cli import exit_codes, outside_faults
from ringfence.cli.duration_option import DURATION
from ringfence.cli.output import Output
from ringfence.cli.program import program
from ringfence.cli.standard_streams import OutputLost
from ringfence.errors import Rejected, RingfenceError, Unreachable

if TYPE_CHECKING:
    from ringfence.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
"""Where `ringfence dev` serves."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")


def told(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command with its errors printed and turned into exit codes; what it returns is its exit code."""

    @functools.wraps(command)
    def run(*arguments: Any, as_json: bool, **options: Any) -> None:
        output = Output(as_json)
        try:
            with outside_faults.named():
                code = command(*arguments, output=output, **options)
        except RingfenceError as error:
            output.error(error)
            code = exit_codes.of_error(error)
        except OutputLost as lost:
            lost.done, lost.as_json = output.done, as_json
            raise
        click.get_current_context().exit(code or exit_codes.OK)

    return json_option(run)


def api_command(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command that is given a connected ``client``."""

    @functools.wraps(command)
    def run(*arguments: Any, url: str, api_key: str | None, retry: float, output: Output, **options: Any) -> int | None:
        try:
            with _client(url, api_key, retry) as client:
                return command(*arguments, client=client, output=output, **options)
        except Unreachable as fault:
            if url != DEFAULT_URL:
                raise
            raise Unreachable(f"{fault}; is `ringfence dev` running? (--url names another API)") from None
        except Rejected as fault:
            if fault.status != 401:
                raise
            how = f"give it in RINGFENCE_API_KEY or with --api-key; `{program()} keys create` makes one"
            raise Rejected(f"{fault} ({how})", kind=fault.kind, status=fault.status, pointer=fault.pointer) from None

    run = click.option(
        "--retry", type=DURATION, default="5s", show_default=True, help="How long to keep trying an API that is unavailable."
    )(run)
    run = click.option(
        "--api-key", envvar="RINGFENCE_API_KEY", show_envvar=True, metavar="KEY", help="The API key. Better in the environment."
    )(run)
    run = click.option(
        "--url", envvar="RINGFENCE_URL", default=DEFAULT_URL, show_default=True, show_envvar=True, help="Where the API is."
    )(run)
    return told(run)


def _client(url: str, api_key: str | None, retry_seconds: float) -> Client:
    from ringfence.client import Client

    try:
        return Client(url, api_key, retry_seconds=retry_seconds)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
