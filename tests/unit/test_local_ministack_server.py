"""How MiniStack is started: with a hypercorn of our own in its place that tells what it was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ringfence.local import ministack_server, tether

HYPERCORN = "import gc, json, sys; print(json.dumps([__name__, sys.argv[1:], sys.path, gc.get_threshold()]))"


def test_it_serves_in_its_own_process_without_full_collections_and_without_our_modules(tmp_path: Path) -> None:
    (tmp_path / "hypercorn.py").write_text(HYPERCORN)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), tether.PARENT_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-P", ministack_server.__file__, "7"]
    told = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60).stdout
    name, arguments, path, (_, _, full) = json.loads(told)
    assert name == "__main__"
    assert arguments == ["--workers", "0", "--bind", "fd://7", "ministack.app:app"]
    assert str(Path(ministack_server.__file__).parent) not in path
    assert full == ministack_server.NEVER
