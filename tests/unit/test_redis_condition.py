"""What is told of a Redis that is not fit to hold queues, and what its errors mean."""

from __future__ import annotations

import pytest
from redis.exceptions import AuthenticationError, BusyLoadingError, ConnectionError, ReadOnlyError, ResponseError, TimeoutError

from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.redis.condition import Condition, parse_info
from ringfence.redis.failures import code_of, unavailable, wants_fresh_connection
from ringfence.settings import Misconfigured

FIT = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "maxmemory": "0"}
WRAPPED = "Error running script (call to f_1c0): @user_script:13: @user_script: 13: -{}"
"""How 6.2 tells of an error in a script."""


def told(*infos: dict[str, str] | None) -> list[str]:
    telemetry = MemoryTelemetry()
    condition = Condition(telemetry)
    for info in infos:
        condition.look("cache:6379", info)
    return [name for name, _ in telemetry.events]


def test_nothing_is_told_of_a_server_that_keeps_its_keys() -> None:
    assert told(FIT) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_policy_that_evicts_queues_is_told(policy: str) -> None:
    """C19"""
    assert told({**FIT, "maxmemory_policy": policy}) == ["redis_evicts_queues"]


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
def test_a_policy_that_evicts_only_what_expires_is_told_apart(policy: str) -> None:
    """C19"""
    assert told({**FIT, "maxmemory_policy": policy}) == ["redis_evicts_other_keys"]


def test_a_fault_is_told_once_however_often_a_connection_is_opened() -> None:
    evicting = {**FIT, "maxmemory_policy": "allkeys-lru"}

    assert told(evicting, evicting, evicting) == ["redis_evicts_queues"]


def test_a_server_that_does_not_let_itself_be_inspected_is_told() -> None:
    assert told(None) == ["redis_not_inspected"]


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7", ""])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(Misconfigured, match=r"6\.2"):
        told({**FIT, "redis_version": version})


@pytest.mark.parametrize("version", ["6.2.0", "7.4.1", "8.0.0", "10.0"])
def test_a_newer_server_will_do(version: str) -> None:
    assert told({**FIT, "redis_version": version}) == []


def test_info_is_read_line_by_line() -> None:
    assert parse_info("# Memory\r\nmaxmemory:0\r\n\r\nexecutable:/a:b\r\n") == {"maxmemory": "0", "executable": "/a:b"}


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ResponseError(WRAPPED.format("READONLY You can't write against a read only replica.")), "READONLY"),
        (ResponseError(WRAPPED.format("OOM command not allowed when used memory > 'maxmemory'.")), "OOM"),
        (ReadOnlyError("You can't write against a read only replica.", status_code="READONLY"), "READONLY"),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), "MISCONF"),
        (TimeoutError("Timeout reading from socket"), "TimeoutError"),
        (ConnectionError("Error 111 connecting to h:6379. Connection refused."), "ConnectionError"),
    ],
)
def test_an_error_has_a_short_name_wherever_the_reply_has_it(failure: Exception, code: str) -> None:
    assert code_of(failure) == code


def test_only_a_connection_that_broke_or_leads_to_a_replica_is_worth_a_fresh_one() -> None:
    replica = ResponseError(WRAPPED.format("READONLY You can't write against a read only replica."))

    assert wants_fresh_connection(ConnectionError("gone"))
    assert wants_fresh_connection(replica)
    for other in (BusyLoadingError("loading"), AuthenticationError("no"), TimeoutError("late"), ResponseError("OOM no")):
        assert not wants_fresh_connection(other), other


def test_what_redis_says_is_not_passed_on() -> None:
    """It may quote what was sent. C42"""
    failure = ResponseError("unknown command 'EVALSHA', with args beginning with: 'canary'")

    assert "canary" not in str(unavailable(failure, "lease from queue default"))
