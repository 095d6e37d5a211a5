"""What every store of the notes of reconciling must do. Subclass `SweepsContract`; the store is empty for each test."""

from __future__ import annotations

import threading

import pytest

from ringfence.ports import SweepStore
from ringfence.sweep import Notes, begun

NOW = 1_700_000_000_000

NOTES = Notes(
    marks={"default": "17/abc", "söme#queue": "/"},
    repairs=[begun(NOW, ["default"]).advanced({0: '["a","j"]', 7: None}, examined=3, renewed=2)],
    round=begun(NOW, previous_at=NOW - 1),
    round_begun_at=NOW,
)


class SweepsContract:
    """All that `ringfence.ports.SweepStore` promises."""

    @pytest.fixture
    def sweeps(self) -> SweepStore:
        raise NotImplementedError

    def test_notes_that_nobody_has_put_are_empty(self, sweeps: SweepStore) -> None:
        assert sweeps.read() == Notes()

    def test_what_is_put_is_read_as_it_was(self, sweeps: SweepStore) -> None:
        assert sweeps.replace(sweeps.read(), NOTES)
        assert sweeps.read() == NOTES.of_version(1)
        assert sweeps.replace(sweeps.read(), Notes(marks={"default": "18/abc"}))
        assert sweeps.read() == Notes(marks={"default": "18/abc"}).of_version(2)

    def test_whoever_has_not_seen_the_latest_puts_nothing(self, sweeps: SweepStore) -> None:
        before = sweeps.read()
        assert sweeps.replace(before, NOTES)
        assert not sweeps.replace(before, Notes())
        seen = sweeps.read()
        assert sweeps.replace(seen, Notes())
        assert not sweeps.replace(seen, NOTES)
        assert sweeps.read() == Notes().of_version(2)

    @pytest.mark.parametrize("first", [True, False])
    def test_of_many_at_once_one_puts_its_notes(self, sweeps: SweepStore, first: bool) -> None:
        if not first:
            assert sweeps.replace(sweeps.read(), NOTES)
        seen = sweeps.read()
        put: list[str] = []

        def replace(mark: str) -> None:
            if sweeps.replace(seen, Notes(marks={"default": mark})):
                put.append(mark)

        threads = [threading.Thread(target=replace, args=(str(number),)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(put) == 1
        assert sweeps.read().marks == {"default": put[0]}
