"""One file for a probe, which is fresh only while every process is well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.process.liveness import LIVE_SECONDS, START_SECONDS, Liveness


class Watched:
    """Two processes, and a clock that goes on when told to."""

    def __init__(self, file: Path) -> None:
        self.file, self.now, self.written = file, 1_000.0, 0
        self.faults: list[str] = []
        self.liveness = Liveness(file, self.faults.append, lambda: self.now)
        self.own = {place: self.liveness.expect(place) for place in (0, 1)}

    def touch(self, *places: int) -> None:
        for place in places:
            self.written += 1
            self.own[place].touch()
            os.utime(self.own[place], ns=(self.written, self.written))

    def is_fresh(self, *places: int) -> bool:
        """Whether a look at these places touches the file."""
        self.file.unlink(missing_ok=True)
        self.liveness.look(places)
        return self.file.exists()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path / "alive")
    yield watched
    watched.liveness.close()


def test_it_is_fresh_while_all_of_them_touch_theirs(watched: Watched) -> None:
    for _ in range(10):
        watched.now += LIVE_SECONDS
        watched.touch(0, 1)
        assert watched.is_fresh(0, 1)


def test_one_that_stops_makes_it_old_however_well_the_other_is(watched: Watched) -> None:
    watched.touch(0, 1)
    assert watched.is_fresh(0, 1)
    watched.now += LIVE_SECONDS - 1
    watched.touch(0)
    assert watched.is_fresh(0, 1)
    watched.now += 2
    watched.touch(0)
    assert not watched.is_fresh(0, 1)
    assert watched.is_fresh(0), "it is gone, and another starts in its place"
    watched.now += 2
    watched.touch(1)
    assert watched.is_fresh(0, 1)


def test_a_process_has_time_to_start(watched: Watched) -> None:
    watched.now += START_SECONDS - 1
    watched.touch(0)
    assert watched.is_fresh(0, 1)
    watched.now += 2
    assert not watched.is_fresh(0, 1)
    watched.liveness.expect(1)
    assert watched.is_fresh(0, 1)


def test_the_file_of_a_process_that_died_does_not_count_for_its_successor(watched: Watched) -> None:
    watched.touch(0, 1)
    watched.is_fresh(0, 1)
    watched.liveness.expect(1)
    watched.is_fresh(0, 1)
    watched.now += LIVE_SECONDS + 1
    watched.touch(0)
    assert watched.is_fresh(0, 1), "it is still starting"
    watched.now += START_SECONDS
    watched.touch(0)
    assert not watched.is_fresh(0, 1)


def test_it_leaves_nothing_of_its_own_behind(watched: Watched) -> None:
    watched.touch(0)
    watched.liveness.close()
    assert not watched.own[0].parent.exists()


def test_a_file_that_cannot_be_touched_is_told_once_and_again_after_it_could(watched: Watched) -> None:
    watched.file = watched.file.parent / "folder" / "alive"
    watched.liveness = Liveness(watched.file, watched.faults.append, lambda: watched.now)
    for _ in range(2):
        for _ in range(3):
            watched.now += LIVE_SECONDS
            watched.liveness.look([])
        watched.file.parent.mkdir(exist_ok=True)
        watched.now += LIVE_SECONDS
        watched.liveness.look([])
        assert watched.file.exists()
        watched.file.unlink()
        watched.file.parent.rmdir()
    assert watched.faults == [f"cannot touch {watched.file}: No such file or directory"] * 2
