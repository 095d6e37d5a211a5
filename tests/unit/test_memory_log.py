"""What the log in memory keeps beyond the contract: shards, positions, threads."""

import hashlib
import threading

from ringfence.memory.log import MemoryLog
from ringfence.ports import LogEntry


def entries(count: int, key: str | None = None) -> list[LogEntry]:
    return [LogEntry(b"%d" % number, key or f"key-{number}") for number in range(count)]


def test_keys_are_spread_over_the_shards_as_kinesis_spreads_them() -> None:
    log = MemoryLog(shards=4)
    log.append(entries(100))
    assert log.shards == [f"shardId-{number:012d}" for number in range(4)]
    for quarter, shard in enumerate(log.shards):
        records = log.read(shard)
        assert records
        assert {record.shard for record in records} == {shard}
        for record in records:
            hashed = int(hashlib.md5(b"key-" + record.data).hexdigest(), 16)
            assert hashed * 4 >> 128 == quarter


def test_one_key_is_one_shard() -> None:
    log = MemoryLog(shards=4)
    log.append(entries(50, key="orders"))
    assert sorted(len(log.read(shard)) for shard in log.shards) == [0, 0, 0, 50]


def test_reading_goes_on_after_a_position() -> None:
    log = MemoryLog()
    sequences = log.append(entries(5))
    assert [record.sequence for record in log.read()] == sequences
    assert [record.data for record in log.read(after=sequences[2])] == [b"3", b"4"]
    assert [record.data for record in log.read(after=sequences[0], limit=2)] == [b"1", b"2"]
    assert log.read(after=sequences[4]) == []
    log.append(entries(1))
    assert [record.data for record in log.read(after=sequences[4])] == [b"0"]


def test_threads_lose_no_record_and_share_no_number() -> None:
    log = MemoryLog(shards=2)
    start = threading.Barrier(8)
    numbers: list[str | None] = []

    def append() -> None:
        start.wait()
        for entry in entries(100):
            numbers.extend(log.append([entry]))

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 800
    assert sorted(record.sequence for record in log.read()) == sorted(number or "" for number in numbers)
