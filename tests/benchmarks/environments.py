"""Environments of their own for the peers: their pins of redis-py clash, and some need a newer Python than ours.

They are made on first use under ``$XDG_CACHE_HOME/ringfence/peers`` and kept; a changed version is another environment.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INSTALL_SECONDS = 600
TOLD_LINES = 3
"""Lines of what an installer says that are told when it fails."""


class NotInstalled(Exception):
    """This machine cannot have the environment; the message says why."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """A virtual environment with these packages."""

    name: str
    packages: tuple[str, ...]
    python: tuple[int, int] | None = None
    """The minor version it needs; None takes the one that runs this."""

    def place(self) -> Path:
        """Its folder, which is made if it is not there yet. Raises `NotInstalled`."""
        return _made(self.name, [*self.packages, str(self.python or sys.version)], self._build)

    def _build(self, folder: Path) -> None:
        interpreter = sys.executable if self.python is None else _interpreter(self.python)
        uv = str(Path(sys.executable).with_name("uv"))
        _run([uv, "venv", "--quiet", "--relocatable", "--python", interpreter, str(folder)])
        python = str(folder / "bin" / "python")
        _run([uv, "pip", "install", "--quiet", "--python", python, *self.packages])


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """A folder with these packages in its ``node_modules``."""

    name: str
    packages: tuple[str, ...]

    def place(self) -> Path:
        """See `PythonEnvironment.place`."""
        return _made(self.name, self.packages, self._build)

    def _build(self, folder: Path) -> None:
        for program in ("node", "npm"):
            if shutil.which(program) is None:
                raise NotInstalled(f"there is no {program} on PATH")
        (folder / "package.json").write_text(json.dumps({"name": "ringfence-peers", "private": True}))
        _run(["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", *self.packages])


Environment = PythonEnvironment | NodeEnvironment


def cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfence" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _made(name: str, contents: list[str] | tuple[str, ...], build: Callable[[Path], None]) -> Path:
    """Built beside its place and renamed into it, so that it is there entirely or not at all."""
    fingerprint = hashlib.sha256("\n".join(contents).encode()).hexdigest()[:12]
    place = cache_folder() / f"{name}-{fingerprint}"
    if place.exists():
        return place
    building = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=place.parent))
    try:
        build(building)
        building.rename(place)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return place


def _interpreter(version: tuple[int, int]) -> str:
    """Of this minor version: pyenv's, one on PATH, or else what uv finds or fetches."""
    wanted = ".".join(map(str, version))
    if sys.version_info[:2] == version:
        return sys.executable
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    for candidate in [*sorted(glob.glob(f"{pyenv}/versions/{wanted}.*/bin/python")), f"python{wanted}"]:
        found = shutil.which(candidate)
        # Of a version that is not switched on, pyenv has a name on PATH that does not run.
        if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    return wanted


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{command[0]} took longer than {INSTALL_SECONDS} s") from None
    if done.returncode:
        said = " / ".join((done.stderr + done.stdout).strip().splitlines()[-TOLD_LINES:])
        raise NotInstalled(f"{Path(command[0]).name} failed: {said}")
