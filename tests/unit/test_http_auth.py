"""Who may ask: keys, scopes, and what is served without them."""

from __future__ import annotations

import pytest

from ringfence import App
from ringfence.http.auth import CACHE_ENTRIES, CACHE_SECONDS, SCOPES, Authenticator
from ringfence.http.routes import ROUTES
from ringfence.ports import ApiKey
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.memory_api import MemoryApi, event_of
from ringfence.testing.system import MemorySystem

OPEN_TO_EVERYONE = {"/v1/health", "/v1/openapi.json"}
WELL_FORMED = "rf_" + "A" * 43


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(App()))


def target_of(path: str) -> str:
    return path.replace("<job_id>", "a" * 26)


class CountingKeys:
    """Keys that count how often they are asked."""

    def __init__(self, api: MemoryApi) -> None:
        self.inner, self.asked = api.keys, 0
        api.keys = self

    def find(self, sha256: str) -> ApiKey | None:
        self.asked += 1
        return self.inner.find(sha256)

    def add(self, key: ApiKey) -> None:
        self.inner.add(key)

    def remove(self, key_id: str) -> bool:
        return self.inner.remove(key_id)

    def all(self) -> list[ApiKey]:
        return self.inner.all()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_but_the_public_ones_needs_a_key_with_its_scope(api: MemoryApi, route: object) -> None:
    method, target, scope = route.method, target_of(route.path), route.scope  # type: ignore[attr-defined]
    without = api.request(method, target)
    if route.path in OPEN_TO_EVERYONE:  # type: ignore[attr-defined]
        assert scope is None
        assert without.status == 200
        return
    assert (without.status, without.kind) == (401, "unauthenticated")
    others = api.key(scopes=set(SCOPES) - {scope})
    refused = api.request(method, target, key=others)
    assert (refused.status, refused.kind) == (403, "forbidden")
    assert api.request(method, target, "{}", key=api.key(scopes={scope})).status not in (401, 403)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {WELL_FORMED}",
        WELL_FORMED,
        f"Bearer {WELL_FORMED}",
        f"Bearer {WELL_FORMED}A",
        f"Bearer {WELL_FORMED[:-1]}",
        f"Bearer {WELL_FORMED[:-1]}é",
        f"Bearer {WELL_FORMED}\n",
        f"Bearer {WELL_FORMED}, Bearer {WELL_FORMED}",
        "Bearer " + "rf_" + "A" * 100_000,
    ],
)
def test_anything_but_a_known_key_is_a_401_with_a_challenge(api: MemoryApi, authorization: str) -> None:
    answer = api.request("GET", "/v1/queues", authorization=authorization)
    assert (answer.status, answer.kind) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_scheme_is_case_insensitive(api: MemoryApi) -> None:
    assert api.request("GET", "/v1/queues", authorization=f"bearer {api.key()}").status == 200


def test_only_the_hash_of_a_key_is_kept(api: MemoryApi) -> None:
    secret = api.key()
    assert len(secret) == 46
    assert secret not in repr(api.keys.all())
    assert secret[3:] not in repr(api.keys.all())


def test_a_key_is_looked_up_once_in_thirty_seconds(api: MemoryApi) -> None:
    keys = CountingKeys(api)
    secret = api.key()
    for _ in range(5):
        assert api.request("GET", "/v1/queues", key=secret).status == 200
    assert keys.asked == 1
    api.clock.sleep(CACHE_SECONDS)
    assert api.request("GET", "/v1/queues", key=secret).status == 200
    assert keys.asked == 2


def test_an_unknown_key_is_remembered_as_unknown_and_no_longer(api: MemoryApi) -> None:
    keys = CountingKeys(api)
    for _ in range(5):
        assert api.request("GET", "/v1/queues", key=WELL_FORMED).status == 401
    assert keys.asked == 1


def test_a_malformed_key_is_not_looked_up(api: MemoryApi) -> None:
    keys = CountingKeys(api)
    api.request("GET", "/v1/queues", key="rf_short")
    assert keys.asked == 0


def test_a_revoked_key_ends_with_its_place_in_the_cache(api: MemoryApi) -> None:
    secret = api.key()
    assert api.request("GET", "/v1/queues", key=secret).status == 200
    [kept] = api.keys.all()
    api.keys.remove(kept.key_id)
    api.clock.sleep(CACHE_SECONDS)
    assert api.request("GET", "/v1/queues", key=secret).status == 401


def test_a_flood_of_wrong_keys_does_not_grow_the_cache(api: MemoryApi) -> None:
    keys = CountingKeys(api)
    authenticator = Authenticator(api)

    def known(secret: str) -> bool:
        try:
            authenticator.caller(f"Bearer {secret}")
        except Exception:  # noqa: BLE001 - only whether
            return False
        return True

    first = f"rf_{0:043d}"
    for n in range(CACHE_ENTRIES):
        assert not known(f"rf_{n:043d}")
    asked = keys.asked
    assert not known(first)
    assert keys.asked == asked, "the first is still remembered"
    known(f"rf_{CACHE_ENTRIES:043d}")
    asked = keys.asked
    known(first)
    assert keys.asked == asked + 1, "the oldest made room"


def test_keys_out_of_reach_are_a_503_and_not_a_401(api: MemoryApi) -> None:
    api.keys = Faulty(api.keys, [unavailable("find")])
    answer = api.request("GET", "/v1/queues", key=WELL_FORMED)
    assert (answer.status, answer.kind) == (503, "unavailable")
    assert api.request("GET", "/v1/queues", key=WELL_FORMED).status == 401


# --- without keys ----------------------------------------------------------------------------------------------------


def keyless(endpoint_url: str | None) -> MemoryApi:
    return MemoryApi(MemorySystem(App()), auth="none", endpoint_url=endpoint_url)


@pytest.mark.parametrize(
    "endpoint_url",
    ["http://127.0.0.1:4566", "http://[::1]:4566", "http://localhost:4566", "http://localhost.localstack.cloud:4566"],
)
def test_without_keys_this_machine_is_served_as_the_default_tenant(endpoint_url: str) -> None:
    api = keyless(endpoint_url)
    answer = api.request("POST", "/v1/jobs", '{"name":"a"}', host="127.0.0.1:8080")
    assert answer.status == 202
    assert api.system.job(answer.document["job_id"]).tenant == "default"


@pytest.mark.parametrize("endpoint_url", [None, "", "https://dynamodb.eu-west-1.amazonaws.com", "http://10.0.0.7:4566"])
def test_without_keys_a_deployed_function_serves_nobody(endpoint_url: str | None) -> None:
    api = keyless(endpoint_url)
    for route in ROUTES:
        if route.path not in OPEN_TO_EVERYONE:
            answer = api.request(route.method, target_of(route.path), host="127.0.0.1")
            assert (answer.status, answer.kind) == (503, "misconfigured")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8080", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8080", "origin": "null"},
        {"host": "127.0.0.1:8080", "origin": "http://localhost.evil.example"},
        {"host": "rebound.evil.example:8080"},
        {"host": "[broken"},
    ],
)
def test_without_keys_a_web_page_elsewhere_cannot_use_the_developers_browser(headers: dict[str, str]) -> None:
    api = keyless("http://127.0.0.1:4566")
    event = event_of("POST", "/v1/jobs", headers, '{"name":"a"}')
    assert api.answer(event)["statusCode"] == 403
    assert not api.system.memory_log.read()


def test_without_keys_a_page_on_this_machine_may_ask() -> None:
    api = keyless("http://127.0.0.1:4566")
    answer = api.request("GET", "/v1/jobs", host="localhost:8080", origin="http://localhost:3000")
    assert answer.status == 200
