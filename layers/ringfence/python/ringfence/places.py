"""Where in the code an exception came from: kinds, files and lines, never a message, for that may quote a user's data."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import PurePath

from ringfence.errors import Unavailable

MAX_FRAMES = 5
"""As many of the user's own frames as a log line tells, the innermost ones."""

_LIBRARIES = (f"{PurePath(__file__).parent}/", f"{sysconfig.get_path('stdlib')}/", "/opt/python/", "/var/runtime/", "<")
"""Paths that no code of the user's has. In Lambda, layers are in ``/opt`` and the runtime in ``/var/runtime``.
https://docs.aws.amazon.com/lambda/latest/dg/python-layers.html"""

_INSTALLED = frozenset({"site-packages", "dist-packages"})

_Frame = tuple[str, int, str]
"""File, line and function."""


def kind_and_place(raised: BaseException) -> str:
    """The exception's type, and where it was raised."""
    frames = list(_frames(raised))
    return type(raised).__name__ + (f" at {_told(frames[-1])}" if frames else "")


def cause(fault: Exception) -> str:
    """What may be told of a fault: a store's own words where there are some (`Unavailable` quotes nothing that was sent), else
    its kind and place."""
    return str(fault) if isinstance(fault, Unavailable) else kind_and_place(fault)


def users_frames(raised: BaseException) -> str:
    """The last frames of the user's own code, outermost first, and where the exception was raised if that is in a library."""
    frames = list(_frames(raised))
    told = [frame for frame in frames if _is_users(frame)][-MAX_FRAMES:]
    if frames and not _is_users(frames[-1]):
        told.append(frames[-1])
    return "; ".join(_told(frame) for frame in told)


def users_place(raised: BaseException) -> str:
    """``file:line`` of the innermost frame of the user's own code, or of the very text that is not Python; "" for neither."""
    if isinstance(raised, SyntaxError) and raised.filename:
        return f"{raised.filename}:{raised.lineno or 1}"
    return next((f"{file}:{line}" for file, line, name in reversed(list(_frames(raised))) if _is_users((file, line, name))), "")


def _frames(raised: BaseException) -> Iterator[_Frame]:
    for frame, line in traceback.walk_tb(raised.__traceback__):
        yield frame.f_code.co_filename, line, frame.f_code.co_name


def is_users_file(file: str) -> bool:
    """Whether a source file is the user's own: neither Ringfence's, nor Python's, nor installed."""
    return not file.startswith(_LIBRARIES) and not _INSTALLED & set(PurePath(file).parts)


def _is_users(frame: _Frame) -> bool:
    return is_users_file(frame[0])


def _told(frame: _Frame) -> str:
    file, line, name = frame
    return f"{PurePath(file).name}:{line} in {name}"
