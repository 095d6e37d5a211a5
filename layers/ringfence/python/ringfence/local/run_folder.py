"""What one run of `ringfence dev` leaves on disk: the logs of its processes. Everything else dies with it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from ringfence.errors import RingfenceError


class NoRunFolder(RingfenceError):
    """There is no place for the logs."""


_LATEST = "latest"
_KEPT_RUNS = 5
"""Earlier runs whose logs are kept, to be read after the fact."""


def make_run_folder(project: Path) -> Path:
    """``.ringfence/run-<pid>`` under the project, empty (``-2``, ``-3`` … for further ones of the same process)."""
    runs = project / ".ringfence"
    try:
        runs.mkdir(exist_ok=True)
    except FileExistsError:
        raise NoRunFolder(f"{runs} is in the way: the logs of `ringfence dev` belong in a folder of this name") from None
    _forget_old(runs)
    number = 1
    while True:
        folder = runs / f"run-{os.getpid()}{'' if number == 1 else f'-{number}'}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        (folder / "logs").mkdir()
        return folder


_FORGET = r"""for name in $(env | sed -n 's/^\(AWS_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done"""
"""What the shell says of an account of the user's own: a profile, say, that the emulator's files do not have."""


def write_environment(folder: Path, variables: Mapping[str, str]) -> Path:
    """Keep the variables where a shell can read them, also as ``.ringfence/latest/environment``. Returns that path.

    They are worth nothing without the process that calls this, which may be killed: so the file looks for it, and a shell that
    reads it later is told.
    """
    file = folder / "environment"
    pid = os.getpid()
    lines = [
        f"kill -0 {pid} 2>/dev/null || ps -p {pid} >/dev/null 2>&1 || {{",
        f"  echo '`ringfence dev` (process {pid}) has ended, and with it what these variables lead to: start it again' >&2",
        "  return 1",
        "}",
        _FORGET,
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())),
    ]
    file.write_text("\n".join(lines) + "\n")
    _link_latest(folder)
    return folder.parent / _LATEST / file.name


def others_running(folder: Path) -> list[Path]:
    """The folders of the other runs of this project that a shell can be led to, the latest first."""
    others = [file.parent for file in folder.parent.glob("run-*/environment") if file.parent != folder]
    return sorted(filter(_is_running, others), key=lambda other: (other / "environment").stat().st_mtime, reverse=True)


def leave_latest(folder: Path) -> None:
    """Let ``latest`` be another run that goes on, now that this one ends. Without one it stays, for the sake of the logs."""
    others = others_running(folder)
    if others and _latest(folder.parent) == folder.name:
        _link_latest(others[0])


def _link_latest(folder: Path) -> None:
    fresh = folder.parent / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(folder.parent / _LATEST)


def _latest(runs: Path) -> str | None:
    """The name of the folder that it is."""
    link = runs / _LATEST
    return os.readlink(link) if link.is_symlink() else None


def _forget_old(runs: Path) -> None:
    latest = _latest(runs)
    ended = [folder for folder in runs.glob("run-*") if not _is_running(folder) and folder.name != latest]
    ended.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in ended[_KEPT_RUNS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(folder: Path) -> bool:
    pid = folder.name.split("-")[1]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
