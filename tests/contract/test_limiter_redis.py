"""The limiter's contract on Redis: each server there is on this machine, and a cluster of three."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence import rate as gcra
from ringfence.errors import Unavailable
from ringfence.ids import RandomIds
from ringfence.job import Millis
from ringfence.local.redis_binaries import redis_server
from ringfence.rate import Rate
from ringfence.redis.address import Server
from ringfence.redis.connection import Connection, connect
from ringfence.redis.limiter import RedisLimiter
from ringfence.redis.scripts import Script, script
from ringfence.testing.limiter_contract import LimiterContract
from ringfence.testing.redis_kinds import KINDS, binary_of
from ringfence.testing.redis_server import RedisServer, redis_cluster

TIME = Script("time", "local time = redis.call('TIME') return time[1] * 1000000 + time[2]")

EARLIER = Script(
    "earlier",
    """local reserved = redis.call('GET', KEYS[1])
    if not reserved then return end
    local arrival, latest, by = string.match(reserved, '^(%d+) (%d+) (%d+)$')
    redis.call('SET', KEYS[1], string.format('%.0f %.0f %s', arrival - ARGV[1], latest - ARGV[1], by))""",
)
"""Moves all that was given out into the past: the same, to a schedule, as if that much time passed."""


@pytest.fixture(scope="module", params=[*KINDS, "cluster"])
def connection(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "cluster":
        with redis_cluster(redis_server(), folder) as nodes:
            yield connect(Server("127.0.0.1", nodes[0].port, cluster=True))
    else:
        with RedisServer(binary_of(request.param), folder) as server:
            yield server.connection()


def pace_of(queue: str) -> str:
    return f"ringfence:{{{queue}}}:pace"


class TestRedisLimiter(LimiterContract):
    @pytest.fixture
    def limiter(self, connection: Connection) -> ByQueue:
        return ByQueue(connection)

    @pytest.fixture
    def moved(self) -> list[float]:
        """The seconds by which `pass_time` has moved the schedule into the past: `now` is as far ahead."""
        return []

    @pytest.fixture
    def now(self, connection: Connection, moved: list[float]) -> Callable[[], float]:
        return lambda: connection.run(TIME, ["any"], []) / 1_000 + sum(moved) * 1_000

    @pytest.fixture
    def pass_time(self, connection: Connection, queue: str, moved: list[float]) -> Callable[[float], None]:
        def pass_time(seconds: float) -> None:
            connection.run(EARLIER, [pace_of(queue)], [round(seconds * 1_000_000)])
            moved.append(seconds)

        return pass_time


class ByQueue:
    """The limiter of whatever queue it is asked about: the contract asks one about several."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def reserve(self, queue: str, count: int, rate: Rate, within: Millis | None = None) -> list[Millis]:
        return RedisLimiter(self._connection, queue).reserve(queue, count, rate, within)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(redis_server(), tmp_path_factory.mktemp("redis")) as server:
        yield server


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3_000_000),
            st.integers(0, 30),
            st.sampled_from([1e-5, 0.2, 1.0, 3.0, 7.7, 300.0, 70_000.0]),
            st.integers(1, 20),
            st.sampled_from([-1, 0, 1_000, 500_000, 4_000_000]),
        ),
        max_size=15,
    )
)
def test_the_script_is_the_arithmetic_of_the_core(server: RedisServer, steps: list[tuple[int, int, float, int, int]]) -> None:
    connection, pace = server.connection(), pace_of(RandomIds().job())
    reserved: gcra.Reserved | None = None
    for pause, count, per_second, burst, within in steps:
        connection.run(EARLIER, [pace], [pause])
        if reserved is not None:
            reserved = gcra.Reserved(reserved.arrival - pause, reserved.latest - pause, reserved.interval_nanos)
        rate = Rate.of(per_second, burst)
        arguments = (count, rate.interval_nanos, rate.burst, within)
        given_out, now, earliest, start = connection.run(script("reserve"), [pace], arguments)
        reserved, waits = gcra.reserve(reserved, rate, count, now, None if within < 0 else within)
        got = [-(-(release - now) // 1_000) for release in gcra.releases(rate, earliest, start, given_out)]
        # Lua reckons in doubles: where the pace changes, a microsecond may be rounded away.
        assert len(got) == len(waits)
        assert all(abs(script_wait - wait) <= 1 for script_wait, wait in zip(got, waits, strict=True))
        if reserved is not None:
            arrival, latest, interval_nanos = map(int, server.ask("GET", pace).split())
            assert abs(arrival - reserved.arrival) <= 1
            assert abs(latest - reserved.latest) <= 1
            reserved = gcra.Reserved(arrival, latest, interval_nanos)


def test_ten_thousand_tickets_are_one_call(server: RedisServer) -> None:
    waits = RedisLimiter(server.connection(), "many").reserve("many", 10_000, Rate.of(100.0, 1))
    assert waits == [10 * ticket for ticket in range(10_000)]


def test_a_schedule_that_says_nothing_any_more_expires(server: RedisServer) -> None:
    limiter = RedisLimiter(server.connection(), "expires")
    limiter.reserve("expires", 3, Rate.of(10.0, 1))
    assert 300 < server.ask("PTTL", pace_of("expires")) <= 1_300


def test_a_memory_that_is_lost_costs_one_burst_too_many(server: RedisServer) -> None:
    limiter = RedisLimiter(server.connection(), "lost")
    assert limiter.reserve("lost", 3, Rate.of(1.0, 2)) == [0, 0, 1_000]
    server.ask("FLUSHALL")
    server.ask("SCRIPT", "FLUSH")
    assert limiter.reserve("lost", 3, Rate.of(1.0, 2)) == [0, 0, 1_000]


def test_a_server_out_of_reach_or_full_is_unavailable(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RedisServer(redis_server(), tmp_path_factory.mktemp("redis")) as server:
        limiter = RedisLimiter(server.connection(), "default")
        limiter.reserve("default", 1, Rate.of(1.0, 1))
        server.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="OOM"):
            limiter.reserve("default", 1, Rate.of(1.0, 1))
    with pytest.raises(Unavailable):
        limiter.reserve("default", 1, Rate.of(1.0, 1))
