"""The environment as one typed value: its defaults, its ranges, and what is said of a variable at fault."""

from __future__ import annotations

import pytest

from ringfence.settings import Misconfigured, Settings

NEEDED = {"RINGFENCE_LEDGER_TABLE": "ledger", "RINGFENCE_STREAM": "log"}


def read(**variables: str) -> Settings:
    return Settings.from_environment({**NEEDED, **variables})


def test_what_is_not_set_has_the_default_that_is_written_beside_it() -> None:
    assert read() == Settings(ledger_table="ledger", stream="log", queues={})


@pytest.mark.parametrize(
    "name",
    ["RINGFENCE_QUEUES", "RINGFENCE_AUTH", "RINGFENCE_BUCKET", "RINGFENCE_LEASE_SECONDS", "POWERTOOLS_SERVICE_NAME"],
)
def test_what_is_set_to_nothing_is_not_set(name: str) -> None:
    """CloudFormation cannot leave out a variable, only empty it."""
    assert read(**{name: ""}) == read()


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_nothing_goes_without_is_named(name: str, value: str | None) -> None:
    without = {key: each for key, each in NEEDED.items() if key != name}

    with pytest.raises(Misconfigured, match=f"{name} is not set"):
        Settings.from_environment(without if value is None else {**without, name: value})


def test_every_variable_is_read() -> None:
    settings = read(
        RINGFENCE_QUEUES='{"default": "https://sqs/default"}',
        RINGFENCE_LAST_RESORT_QUEUE="https://sqs/last-resort",
        RINGFENCE_BUCKET="bucket",
        RINGFENCE_TABLES='{"Users": "stack-Users-1"}',
        RINGFENCE_APP="jobs:app",
        RINGFENCE_AUTH="none",
        RINGFENCE_WAIT_CAP_SECONDS="20",
        RINGFENCE_WORKER_THREADS="8",
        RINGFENCE_LEASE_SECONDS="2.5",
        RINGFENCE_RETENTION_DAYS="30",
        RINGFENCE_PACE_HORIZON_SECONDS="60",
        POWERTOOLS_SERVICE_NAME="stack",
        AWS_ENDPOINT_URL="http://127.0.0.1:4566",
    )

    assert settings == Settings(
        ledger_table="ledger",
        stream="log",
        queues={"default": "https://sqs/default"},
        last_resort_queue="https://sqs/last-resort",
        bucket="bucket",
        tables={"Users": "stack-Users-1"},
        app="jobs:app",
        auth="none",
        wait_cap_seconds=20,
        worker_threads=8,
        lease_seconds=2.5,
        retention_days=30,
        pace_horizon_seconds=60,
        service="stack",
        endpoint_url="http://127.0.0.1:4566",
    )


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("RINGFENCE_WAIT_CAP_SECONDS", ("0", "20"), ("-1", "20.1")),
        ("RINGFENCE_WORKER_THREADS", ("1", "64"), ("0", "65", "2.5")),
        ("RINGFENCE_LEASE_SECONDS", ("1", "43200"), ("0.9", "43201")),
        ("RINGFENCE_RETENTION_DAYS", ("7", "180"), ("6", "181")),
        ("RINGFENCE_PACE_HORIZON_SECONDS", ("1", "900"), ("0.9", "901")),
    ],
)
def test_a_number_is_in_its_range(name: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    for value in inside:
        read(**{name: value})
    for value in (*outside, "inf", "-inf", "nan", "many", "1e999"):
        with pytest.raises(Misconfigured, match=f"{name} is not a (whole )?number from") as fault:
            read(**{name: value})
        assert repr(value) in str(fault.value)


@pytest.mark.parametrize("value", ["[]", '{"default": 1}', "default", "{"])
def test_names_are_a_json_object_of_strings(value: str) -> None:
    for name in ("RINGFENCE_QUEUES", "RINGFENCE_TABLES"):
        with pytest.raises(Misconfigured, match=f"{name} is not a JSON object of strings"):
            read(**{name: value})


def test_keys_are_asked_for_unless_none_is_written_out() -> None:
    assert read().auth == "api-key"
    with pytest.raises(Misconfigured, match="RINGFENCE_AUTH is neither api-key nor none: 'off'"):
        read(RINGFENCE_AUTH="off")
