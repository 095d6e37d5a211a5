"""What every store of live settings must do. Subclass `SettingsContract`; each of its tests takes a queue of its own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ringfence.errors import Rejected
from ringfence.ids import RandomIds
from ringfence.ports import SettingsStore
from ringfence.queue_settings import Line, QueueSettings, QueueState

NOW = 1_700_000_000_000


class SettingsContract:
    """All that `ringfence.ports.SettingsStore` promises."""

    @pytest.fixture
    def settings(self) -> SettingsStore:
        raise NotImplementedError

    @pytest.fixture
    def queue(self) -> str:
        return RandomIds().job()

    # --- settings ----------------------------------------------------------------------------------------------------

    def test_a_queue_of_which_nothing_was_set_has_the_defaults(self, settings: SettingsStore, queue: str) -> None:
        assert settings.read(queue) == QueueState()
        assert queue not in settings.all()

    def test_what_is_set_is_read_and_the_rest_left_alone(self, settings: SettingsStore, queue: str) -> None:
        settings.change(queue, {"rate_per_second": 0.2, "burst": 7})
        changed = settings.change(queue, {"paused": True, "high_water_mark": 5_000})
        assert changed == QueueSettings(rate_per_second=0.2, burst=7, paused=True, high_water_mark=5_000)
        assert settings.read(queue) == QueueState(settings=changed)
        assert settings.all()[queue] == QueueState(settings=changed)

    def test_a_limit_is_taken_away_with_none(self, settings: SettingsStore, queue: str) -> None:
        settings.change(queue, {"rate_per_second": 10, "high_water_mark": 5, "paused": True})
        changed = settings.change(queue, {"rate_per_second": None, "high_water_mark": None, "paused": False})
        assert changed == QueueSettings()
        assert settings.read(queue).settings == changed

    def test_no_change_changes_nothing(self, settings: SettingsStore, queue: str) -> None:
        settings.change(queue, {"burst": 3})
        assert settings.change(queue, {}) == QueueSettings(burst=3)

    @pytest.mark.parametrize("rate", [1e-5, 0.1, 1 / 3, 12.5, 100_000.0, 7])
    def test_a_rate_comes_back_as_it_went_in(self, settings: SettingsStore, queue: str, rate: float) -> None:
        settings.change(queue, {"rate_per_second": rate})
        assert settings.read(queue).settings.rate_per_second == rate

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"rate_per_second": 0}, "/rate_per_second"),
            ({"rate_per_second": -1.0}, "/rate_per_second"),
            ({"rate_per_second": float("inf")}, "/rate_per_second"),
            ({"rate_per_second": float("nan")}, "/rate_per_second"),
            ({"rate_per_second": 1e9}, "/rate_per_second"),
            ({"rate_per_second": True}, "/rate_per_second"),
            ({"burst": 0}, "/burst"),
            ({"burst": 1.5}, "/burst"),
            ({"burst": None}, "/burst"),
            ({"paused": 1}, "/paused"),
            ({"paused": None}, "/paused"),
            ({"high_water_mark": 0}, "/high_water_mark"),
            ({"high_water_mark": True}, "/high_water_mark"),
            ({"speed": 3}, "/speed"),
        ],
    )
    def test_what_cannot_be_is_refused_whole(
        self, settings: SettingsStore, queue: str, changes: dict[str, Any], pointer: str
    ) -> None:
        before = settings.change(queue, {"rate_per_second": 3.0, "burst": 2})
        with pytest.raises(Rejected) as refusal:
            settings.change(queue, {"high_water_mark": 9, **changes})
        assert (refusal.value.status, refusal.value.pointer) == (422, pointer)
        assert settings.read(queue).settings == before

    def test_two_who_change_different_settings_at_once_both_get_their_way(self, settings: SettingsStore, queue: str) -> None:
        changes: list[dict[str, Any]] = [{"rate_per_second": 4.0}, {"burst": 9}, {"paused": True}, {"high_water_mark": 77}]
        threads = [threading.Thread(target=settings.change, args=(queue, change)) for change in changes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = QueueSettings(rate_per_second=4.0, burst=9, paused=True, high_water_mark=77)
        assert settings.read(queue).settings == expected

    # --- the line ----------------------------------------------------------------------------------------------------

    def test_places_follow_one_another_and_the_clock(self, settings: SettingsStore, queue: str) -> None:
        assert settings.join_line(queue, 3, NOW) == [NOW, NOW + 1, NOW + 2]
        assert settings.join_line(queue, 2, NOW) == [NOW + 3, NOW + 4]
        assert settings.join_line(queue, 1, NOW + 4) == [NOW + 5], "the clock has not come past those before"
        assert settings.join_line(queue, 1, NOW + 1_000) == [NOW + 1_000]
        assert settings.join_line(queue, 1, NOW - 60_000) == [NOW + 1_001], "a clock that lags overtakes nobody"

    def test_whoever_joins_makes_newcomers_join_as_well(self, settings: SettingsStore, queue: str) -> None:
        settings.change(queue, {"paused": True})
        settings.join_line(queue, 2, NOW)
        assert settings.read(queue) == QueueState(
            settings=QueueSettings(paused=True), line=Line(waiting=True, last_place=NOW + 1)
        )

    def test_a_line_that_nobody_joined_since_is_opened_once(self, settings: SettingsStore, queue: str) -> None:
        (place,) = settings.join_line(queue, 1, NOW)
        assert settings.open_line(queue, place, NOW + 50)
        assert settings.read(queue).line == Line(waiting=False, last_place=place, open_from=NOW + 50)
        assert not settings.open_line(queue, place, NOW + 99)
        assert settings.read(queue).line.open_from == NOW + 50

    def test_a_line_that_somebody_joined_since_stays_shut(self, settings: SettingsStore, queue: str) -> None:
        (place,) = settings.join_line(queue, 1, NOW)
        (later,) = settings.join_line(queue, 1, NOW)
        assert not settings.open_line(queue, place, NOW)
        assert settings.read(queue).line.waiting
        assert settings.open_line(queue, None, NOW + 5_000), "unless whoever opens it means it"
        assert settings.read(queue).line == Line(waiting=False, last_place=later, open_from=NOW + 5_000)

    def test_a_line_that_never_was_is_not_opened(self, settings: SettingsStore, queue: str) -> None:
        assert not settings.open_line(queue, None, NOW)
        assert not settings.open_line(queue, NOW, NOW)
        assert not settings.read(queue).line.waiting

    def test_a_line_is_joined_again_after_it_was_opened(self, settings: SettingsStore, queue: str) -> None:
        (place,) = settings.join_line(queue, 1, NOW)
        settings.open_line(queue, place, NOW)
        assert settings.join_line(queue, 1, NOW) == [NOW + 1]
        assert settings.read(queue).line.waiting

    def test_no_two_jobs_are_given_the_same_place(self, settings: SettingsStore, queue: str) -> None:
        given: list[int] = []

        def join() -> None:
            for step in range(5):
                given.extend(settings.join_line(queue, 3, NOW + step))

        threads = [threading.Thread(target=join) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(given) == len(set(given)) == 60
