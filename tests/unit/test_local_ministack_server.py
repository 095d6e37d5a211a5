"""How MiniStack is started: with a hypercorn and a MiniStack of our own in their places, which tell what they were given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ringfence.local import ministack_server, tether

HYPERCORN = """
import gc, json, sys
from ministack.services import kinesis
for _ in range(100):
    kinesis._expire_iterators()
print(json.dumps([__name__, sys.argv[1:], sys.path, gc.get_threshold(), kinesis.expired]))
"""
KINESIS = """
expired = 0
def _expire_iterators():
    global expired
    expired += 1
"""


def test_it_serves_in_its_own_process_without_our_modules_and_without_what_would_slow_it_down(tmp_path: Path) -> None:
    services = tmp_path / "ministack" / "services"
    services.mkdir(parents=True)
    (services / "kinesis.py").write_text(KINESIS)
    (tmp_path / "hypercorn.py").write_text(HYPERCORN)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), tether.PARENT_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-P", ministack_server.__file__, "7"]
    told = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60).stdout
    name, arguments, path, (_, _, full), expired = json.loads(told)
    assert name == "__main__"
    assert arguments == ["--workers", "0", "--bind", "fd://7", "ministack.app:app"]
    assert str(Path(ministack_server.__file__).parent) not in path
    assert full == ministack_server.NEVER
    assert 1 <= expired < 100


def test_expired_iterators_are_removed_again_after_an_interval() -> None:
    times = [0.0]
    done_at: list[float] = []
    expire = ministack_server.at_intervals(lambda: done_at.append(times[-1]), 1.0, lambda: times[-1])
    for moment in (0.0, 0.9, 1.0, 1.5, 2.5):
        times.append(moment)
        expire()
    assert done_at == [0.0, 1.0, 2.5]
