"""MiniStack in a virtual environment of its own: it pins a botocore that may not be ours.

Made on first use, with every package pinned by hash (``ministack.lock.txt``, compiled from ``ministack.in``), and shared by all
projects of the user.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.errors import RingfenceError

LOCK = Path(__file__).with_name("ministack.lock.txt")

_TELLING_LINES = 12
"""Lines of pip's output that are shown when it fails."""


class NotInstalled(RingfenceError):
    """MiniStack could not be installed."""


def ministack_python(tell: Callable[[str], None]) -> Path:
    """The interpreter of MiniStack's environment, which is made if it is not there yet. Raises `NotInstalled`.

    It is built beside its place and renamed into it, so that it is there entirely or not at all; a lock makes a second start
    wait for the first instead of downloading the same again.
    """
    place = _cache_folder() / f"ministack-{_fingerprint()}"
    python = place / "bin" / "python"
    if python.exists():
        return python
    with _only_one(place.with_suffix(".lock")):
        if not python.exists():
            tell(f"Installing MiniStack in {place} (once)")
            _build(place)
    return python


def _cache_folder() -> Path:
    """``$XDG_CACHE_HOME/ringfence``, or ``.ringfence`` here where the home directory cannot be written."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfence"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        wanted = Path.cwd() / ".ringfence"
        wanted.mkdir(exist_ok=True)
    return wanted


def _fingerprint() -> str:
    """Changes with the pinned packages and with the interpreter that the environment links to."""
    base = Path(sys.base_prefix).resolve()
    return hashlib.sha256(LOCK.read_bytes() + f"{base} {sys.version}".encode()).hexdigest()[:16]


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(place: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        python = str(building / "bin" / "python")
        if importlib.util.find_spec("pip") is not None:
            # The pip that is here works there too. One of its own takes as long to install as all of MiniStack.
            _run([sys.executable, "-m", "venv", "--without-pip", str(building)])
            pip = [sys.executable, "-m", "pip", "--python", python]
        else:
            _run([sys.executable, "-m", "venv", str(building)])
            pip = [python, "-m", "pip"]
        options = ["--disable-pip-version-check", "--quiet"]
        _run([*pip, *options, "install", "--require-hashes", "--requirement", str(LOCK)])
        building.rename(place)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = done.stdout.decode(errors="replace").strip().splitlines()
        told = "\n".join(lines[-_TELLING_LINES:])
        raise NotInstalled(
            f"{' '.join(command[:4])} … failed with exit code {done.returncode}:\n{told}\n"
            "`ringfence dev --emulator moto` needs no installation; `--endpoint-url` uses an emulator that is running."
        )
