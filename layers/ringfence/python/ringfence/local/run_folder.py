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


_FORGET = r"""for name in $(env | sed -n 's/^\(AWS_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
"""
"""What the shell says of an account of the user's own: a profile, say, that the emulator's files do not have."""


def write_environment(folder: Path, variables: Mapping[str, str]) -> Path:
    """Keep the variables where a shell can read them, also as ``.ringfence/latest/environment``. Returns that path."""
    file = folder / "environment"
    file.write_text(_FORGET + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))
    latest = folder.parent / "latest"
    fresh = folder.parent / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(latest)
    return latest / file.name


def _forget_old(runs: Path) -> None:
    ended = [folder for folder in runs.glob("run-*") if not _is_running(folder)]
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
