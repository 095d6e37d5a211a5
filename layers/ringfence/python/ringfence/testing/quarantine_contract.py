"""What every quarantine must do. Subclass `QuarantineContract` and give it an empty quarantine."""

from __future__ import annotations

import pytest

from ringfence.ports import Quarantine, SetAside

START = 1_700_000_000_000


def set_aside(number: int, *, source: str = "log:shard-0", data: bytes = b"\x00\xff?", job_id: str | None = None) -> SetAside:
    return SetAside(
        source=source, position=f"{number:056}", reason="not a log record", data=data, at=START + number, job_id=job_id
    )


class QuarantineContract:
    """All that `ringfence.ports.Quarantine` promises."""

    @pytest.fixture
    def quarantine(self) -> Quarantine:
        """An empty quarantine for each test."""
        raise NotImplementedError

    def test_it_is_empty_at_first(self, quarantine: Quarantine) -> None:
        assert quarantine.items() == []

    @pytest.mark.parametrize("data", [b"", b"\x1f\x8b\x08", b"\xff" * 262_144], ids=["nothing", "gzip", "256 KiB"])
    def test_the_bytes_are_kept_as_they_were(self, quarantine: Quarantine, data: bytes) -> None:
        """C08: a bad record rests with its raw bytes, shard and sequence number."""
        kept = set_aside(1, data=data, job_id="some-job")
        quarantine.put(kept)
        assert quarantine.items() == [kept]

    def test_the_newest_come_first_up_to_the_limit(self, quarantine: Quarantine) -> None:
        for number in (3, 1, 5, 2, 4):
            quarantine.put(set_aside(number))
        assert quarantine.items() == [set_aside(number) for number in (5, 4, 3, 2, 1)]
        assert quarantine.items(limit=2) == [set_aside(5), set_aside(4)]

    def test_the_same_place_twice_is_one_item_and_the_first_stays(self, quarantine: Quarantine) -> None:
        first = set_aside(1)
        quarantine.put(first)
        quarantine.put(SetAside(source=first.source, position=first.position, reason="again", data=b"", at=first.at + 60_000))
        assert quarantine.items() == [first]

    def test_places_that_only_look_alike_are_two(self, quarantine: Quarantine) -> None:
        for source, position in (("log:1", "23"), ("log:12", "3"), ("queue:1", "23")):
            quarantine.put(SetAside(source=source, position=position, reason="", data=b"", at=START))
        assert {(item.source, item.position) for item in quarantine.items()} == {
            ("log:1", "23"),
            ("log:12", "3"),
            ("queue:1", "23"),
        }
