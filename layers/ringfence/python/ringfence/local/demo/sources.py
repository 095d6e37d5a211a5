"""The Python files that the demo indexes: the running Python's standard library, or any folder's."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import RingfenceError

PREFIX = "modules"
"""The folder in the bucket, so that no file of the user's can meet one of the demo's own."""

NOT_MODULES = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
"""Folders inside the standard library that are not of it (what pip installed, bytecode) or are its tests: those hold many
files that are broken on purpose, and nobody imports them."""


class NoSources(RingfenceError):
    """There is no Python file to index."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its key in the bucket, and its bytes, read once so that everybody counts the same."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Sources:
    """The files found, in order of their keys, and those that were left out with the reason."""

    files: tuple[Source, ...]
    left_out: tuple[str, ...] = ()


def standard_library() -> Sources:
    """The modules of the running Python's standard library, without `NOT_MODULES`."""
    return _read(Path(sysconfig.get_path("stdlib")), lambda folder: folder.name not in NOT_MODULES)


def files_in(folder: Path) -> Sources:
    """Every ``.py`` file below ``folder``, but for hidden folders, bytecode and virtual environments."""
    return _read(
        folder,
        lambda inner: not inner.name.startswith(".") and inner.name != "__pycache__" and not (inner / "pyvenv.cfg").exists(),
    )


def _read(root: Path, enter: Callable[[Path], bool]) -> Sources:
    found: list[Source] = []
    left_out: list[str] = []
    for path in _python_files(root, enter):
        name = path.relative_to(root).as_posix()
        try:
            key = f"{PREFIX}/{name}"
            key.encode()
            found.append(Source(key, path.read_bytes()))
        except UnicodeEncodeError:
            left_out.append(f"{name!r}: its name is not UTF-8")
        except OSError as fault:
            left_out.append(f"{name}: {fault.strerror}")
    if not found:
        raise NoSources(f"there is no readable Python file in {root}")
    return Sources(tuple(sorted(found, key=lambda source: source.key)), tuple(left_out))


def _python_files(root: Path, enter: Callable[[Path], bool]) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if enter(Path(folder, name))]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))
