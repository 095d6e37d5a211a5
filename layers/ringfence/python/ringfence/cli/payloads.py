"""Payloads on the command line: JSON itself, ``@FILE``, or ``-`` for standard input. Their exact text is what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ringfence.errors import Rejected

if TYPE_CHECKING:
    from ringfence.client import RawJson


def payload_option(written: str | None) -> RawJson | None:
    """What ``--payload`` names, None if it is not given. Anything but JSON is a usage error."""
    return None if written is None else checked(_read(written), "--payload")


def checked(text: str, where: str) -> RawJson:
    """The text as a payload. Anything but JSON that the API takes is a usage error that says where it stood."""
    from ringfence import jsontext
    from ringfence.client import RawJson

    try:
        jsontext.check(text)
    except Rejected as fault:
        raise click.BadParameter(str(fault), param_hint=where) from None
    return RawJson(text.strip())


def _read(written: str) -> str:
    if written != "-" and not written.startswith("@"):
        return written
    try:
        with click.open_file(written.removeprefix("@"), encoding="utf-8") as file:
            return str(file.read())
    except (OSError, UnicodeDecodeError) as fault:
        raise click.BadParameter(str(fault), param_hint="--payload") from None
