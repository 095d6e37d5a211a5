"""What every log must do. Subclass `LogContract` and give the fixtures ``log`` and ``stored``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.ports import Log, LogEntry

Stored = Callable[[], list[bytes]]


def entry(data: bytes, key: str = "key") -> LogEntry:
    return LogEntry(data, key)


class LogContract:
    """Append, as `ringfence.ports.Log` promises."""

    @pytest.fixture
    def log(self) -> Log:
        """An empty log of its own for each test."""
        raise NotImplementedError

    @pytest.fixture
    def stored(self) -> Stored:
        """Reads back the data of every record in ``log``; in order for records of one partition key."""
        raise NotImplementedError

    def test_nothing_appended_is_nothing_stored(self, log: Log, stored: Stored) -> None:
        assert log.append([]) == []
        assert stored() == []

    @pytest.mark.parametrize("data", [b'{"v":1,"jobs":[]}', b"", b"\x00\xff\x1f\x8b", b"x" * 262_144])
    def test_bytes_are_stored_as_they_are(self, log: Log, stored: Stored, data: bytes) -> None:
        (sequence,) = log.append([entry(data)])
        assert sequence
        assert stored() == [data]

    def test_every_entry_is_answered_by_index(self, log: Log, stored: Stored) -> None:
        entries = [entry(b"%d" % number, f"key-{number}") for number in range(30)]
        sequences = log.append(entries)
        assert len(sequences) == 30
        assert all(sequences)
        assert sorted(stored()) == sorted(one.data for one in entries)

    def test_one_key_keeps_its_order(self, log: Log, stored: Stored) -> None:
        sequences = [log.append([entry(b"%d" % number)])[0] for number in range(5)]
        numbers = [int(sequence) for sequence in sequences if sequence is not None]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 5
        assert stored() == [b"0", b"1", b"2", b"3", b"4"]

    def test_more_entries_than_one_request_takes_are_all_appended(self, log: Log, stored: Stored) -> None:
        entries = [entry(b"%d" % number, f"key-{number}") for number in range(1_101)]
        assert None not in log.append(entries)
        assert sorted(stored()) == sorted(one.data for one in entries)

    def test_more_bytes_than_one_request_takes_are_all_appended(self, log: Log, stored: Stored) -> None:
        entries = [entry(b"%03d" % number + b"x" * 250_000, f"key-{number}") for number in range(44)]
        assert None not in log.append(entries)
        assert sorted(data[:3] for data in stored()) == [b"%03d" % number for number in range(44)]

    @pytest.mark.parametrize("key", ["ünïcødé 🦊", "k" * 256, " "])
    def test_any_partition_key_will_do(self, log: Log, stored: Stored, key: str) -> None:
        assert None not in log.append([entry(b"data", key)])
        assert stored() == [b"data"]
