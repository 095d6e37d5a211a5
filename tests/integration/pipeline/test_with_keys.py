"""A system that asks for keys, as a deployment does: its front door, and every file of events/ through its handler."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ringfence.job import State
from ringfence.local.dev import Dev
from ringfence.ports import ApiKey
from ringfence.runtime import Runtime
from ringfence.testing.emulator_kinds import USUAL, startable

ROOT = Path(__file__).parents[3]
EVENTS = sorted((ROOT / "events").glob("*/*.json"))


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with Dev(
        ROOT / "template.yaml", emulator=startable(USUAL), auth="api-key", run_folder=tmp_path_factory.mktemp("run")
    ) as guarded:
        yield guarded


@pytest.fixture(scope="module")
def outcomes(dev: Dev, here: Runtime) -> dict[str, Any]:
    """What each handler returned for each event, in the order in which a job would cause them."""
    tell_key(here)
    order = ["gateway", "relay", "worker", "timers"]
    returned = {}
    for path in sorted(EVENTS, key=lambda path: (order.index(path.parent.name), path.name)):
        event = path.read_text().replace(":ringfence-default", ":" + here.settings.queues["default"].rpartition("/")[2])
        outcome = dev.invoke(f"{path.parent.name.capitalize()}Function", event.encode())
        assert outcome.error is None, f"{path}: {outcome.told()}"
        returned[f"{path.parent.name}/{path.stem}"] = outcome.value()
    return returned


def tell_key(here: Runtime) -> None:
    """Make the key that the gateway's events carry a key of this system."""
    event = json.loads((ROOT / "events/gateway/submit-one.json").read_text())
    secret = event["headers"]["authorization"].removeprefix("Bearer ")
    key = ApiKey(
        key_id="example",
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        tenant="default",
        scopes=frozenset({"submit"}),
        created_at=here.clock.now(),
    )
    here.keys.add(key)


def test_every_event_is_taken_by_its_handler(outcomes: dict[str, Any]) -> None:
    assert outcomes.keys() == {f"{path.parent.name}/{path.stem}" for path in EVENTS}
    assert len(outcomes) >= 8


def test_the_gateways_events_are_answered_as_their_names_say(outcomes: dict[str, Any]) -> None:
    statuses = {name: answer["statusCode"] for name, answer in outcomes.items() if name.startswith("gateway/")}
    assert statuses == {
        "gateway/submit-one": 202,
        "gateway/submit-many": 202,
        "gateway/submit-at-least-once": 202,
        "gateway/base64-body": 202,
        "gateway/bad-body": 400,
    }


def test_the_relays_poison_is_quarantined_and_nothing_is_read_again(outcomes: dict[str, Any], here: Runtime) -> None:
    assert outcomes["relay/poison-in-the-middle"] == {"batchItemFailures": []}
    assert any(item.source.startswith("log:") for item in here.quarantine.items())


def test_the_workers_redelivery_ends_the_job(outcomes: dict[str, Any], here: Runtime) -> None:
    event = json.loads((ROOT / "events/worker/redelivery.json").read_text())
    job_id = json.loads(event["Records"][0]["body"])["job_id"]
    deadline = time.monotonic() + 30
    # The system's own worker may have been first, and may not have ended it yet.
    while (job := here.ledger.get(job_id)) is None or not job.state.terminal:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (job.state, job.token) == (State.SUCCEEDED, job.attempts)
    assert outcomes["timers/minute"].keys() == {"released", "drained", "renewed"}


@pytest.fixture
def made_key(dev: Dev) -> str:
    made = subprocess.run(
        [Path(sys.executable).parent / "ringfence", "keys", "create", "--json"],
        env={**os.environ, **dev.environment("GatewayFunction")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return str(json.loads(made.stdout)["api_key"])


def status_of(dev: Dev, path: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection(urlsplit(dev.api_url).netloc, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/aaaaaaaaaaaaaaaaaaaaaaaaaa", "/v1/queues", "/v1/quarantine"])
def test_a_request_without_a_key_is_unauthenticated(dev: Dev, path: str) -> None:
    assert status_of(dev, path, {}) == 401
    assert status_of(dev, path, {"Authorization": "Bearer rf_" + "A" * 43}) == 401


@pytest.mark.parametrize("path", ["/v1/health", "/v1/openapi.json"])
def test_health_and_the_api_document_are_for_all(dev: Dev, path: str) -> None:
    assert status_of(dev, path, {}) == 200


def test_a_key_made_on_the_command_line_opens_what_its_scopes_allow(dev: Dev, made_key: str) -> None:
    authorized = {"Authorization": f"Bearer {made_key}"}
    assert status_of(dev, "/v1/jobs", authorized) == 200
    assert status_of(dev, "/v1/quarantine", authorized) == 403


def test_c42_no_secret_and_no_payload_is_in_any_log(dev: Dev, made_key: str, outcomes: dict[str, Any]) -> None:
    status_of(dev, "/v1/jobs", {"Authorization": f"Bearer {made_key}"})
    logged = "".join(path.read_text(errors="replace") for path in dev.logs.glob("*.log"))
    assert "job_accepted" in logged
    for canary in (made_key, "rf_EXAMPLE", "ada@example.com"):
        assert canary not in logged
