"""What RINGFENCE_QUEUES may say of a Redis, and that no password is ever told."""

from __future__ import annotations

import pytest

from ringfence.redis.address import Address, Server, parse
from ringfence.settings import Misconfigured

CANARY = "hunter2-canary"


def test_a_url_names_the_server_and_the_queue() -> None:
    assert parse("redis://cache.example:6380/payments") == Address(Server("cache.example", 6380), "payments")


def test_the_port_is_the_usual_one_unless_given() -> None:
    assert parse("redis://cache.example/payments").server.port == 6379


def test_the_options_choose_database_and_cluster() -> None:
    assert parse("redis://h/q?db=3").server.db == 3
    assert parse("redis://h/q?cluster=1").server.cluster
    assert parse("rediss://h/q").server.tls


def test_user_and_password_may_hold_anything_that_is_quoted() -> None:
    server = parse("rediss://jobs:p%40ss%2Fw%3Ard@h/q").server

    assert (server.username, server.password) == ("jobs", "p@ss/w:rd")
    assert parse("redis://:only-password@h/q").server.username is None


def test_an_address_of_the_sixth_version_is_an_address() -> None:
    assert parse("redis://[::1]:6380/q").server == Server("::1", 6380)


def test_the_last_part_of_the_path_is_the_name() -> None:
    assert parse("redis://h/teams/billing/payments").name == "payments"


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h/",
        "redis:///q",
        "redis://h:port/q",
        "redis://h:99999/q",
        "redis://h/{q}",
        "redis://h/q q",
        "redis://h/" + "q" * 201,
        "redis://h/q?db=one",
        "redis://h/q?db=-1",
        "redis://h/q?cluster=yes",
        "redis://h/q?cluster=1&db=2",
        "redis://h/q?timeout=5",
        "redis://h/q?db",
        "redis://[::1/q",
        "http://h/q",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="RINGFENCE_QUEUES"):
        parse(url)


@pytest.mark.parametrize(
    "rest", ["h", "h/{q}", "h:port/q", "h/q?x=1", "h/q?cluster=1&db=2", f"h1:6379,h2:6379/q,redis://:{CANARY}@h3/q"]
)
def test_a_refused_url_does_not_tell_its_password(rest: str) -> None:
    """C42"""
    with pytest.raises(Misconfigured) as refused:
        parse(f"redis://jobs:{CANARY}@{rest}")

    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_server_that_is_shown_does_not_tell_its_password() -> None:
    """C42"""
    server = parse(f"redis://jobs:{CANARY}@h/q").server

    assert CANARY not in f"{server} {server!r}"
