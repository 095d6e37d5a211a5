"""Looking at jobs, waiting for them, and acting on them over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from ringfence import App, Context, Dead
from ringfence.memory.clock import ManualClock
from ringfence.ports import SetAside
from ringfence.testing.memory_api import Answered, MemoryApi
from ringfence.testing.system import MemorySystem

INTERNAL = {"attempt_id", "write_id", "ticket_id", "ticket_deliveries", "due_id", "tenant", "version", "worker", "lease_until"}


def jobs() -> App:
    app = App()

    @app.job("half")
    def half(ctx: Context, n: int) -> dict[str, Any]:
        ctx.progress(1, 2)
        ctx.checkpoint({"seen": n})
        return {"half": n / 2}

    @app.job("fail")
    def fail(ctx: Context, reason: str = "no") -> None:
        raise Dead(reason)

    return app


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(jobs()), wait_cap_seconds=20)


@pytest.fixture
def key(api: MemoryApi) -> str:
    return api.key()


def run(api: MemoryApi) -> None:
    api.system.run_relay()
    api.system.run_worker()


def dead_job(api: MemoryApi) -> str:
    job_id = api.system.submit("fail").job_id
    run(api)
    return job_id


def get(api: MemoryApi, key: str, target: str, **headers: str) -> Answered:
    return api.request("GET", f"/v1/jobs{target}", key=key, **headers)


def test_a_finished_job_shows_its_result_and_nothing_internal(api: MemoryApi, key: str) -> None:
    job_id = api.system.submit("half", '{"n":3}').job_id
    run(api)
    shown = get(api, key, f"/{job_id}").document
    assert shown["state"] == "succeeded"
    assert shown["payload"] == {"n": 3}
    assert shown["result"] == {"half": 1.5}
    assert shown["token"] == shown["attempts"] == 1
    assert shown["created_at"] == "2023-11-14T22:13:20.000Z"
    assert [past["outcome"] for past in shown["history"]] == ["succeeded"]
    assert not INTERNAL & shown.keys()


def test_a_dead_job_says_why(api: MemoryApi, key: str) -> None:
    shown = get(api, key, f"/{dead_job(api)}").document
    assert (shown["state"], shown["error"]) == ("dead", "no")


# --- entity tags -----------------------------------------------------------------------------------------------------


def test_a_job_is_not_sent_again_until_it_changes(api: MemoryApi, key: str) -> None:
    job_id = api.system.submit("half", '{"n":3}').job_id
    tag = get(api, key, f"/{job_id}").headers["etag"]
    unchanged = get(api, key, f"/{job_id}", if_none_match=f'"other", W/{tag}')
    assert (unchanged.status, unchanged.text, unchanged.headers["etag"]) == (304, "", tag)
    assert get(api, key, f"/{job_id}", if_none_match="*").status == 304
    run(api)
    changed = get(api, key, f"/{job_id}", if_none_match=tag)
    assert changed.status == 200
    assert changed.headers["etag"] != tag


# --- waiting ---------------------------------------------------------------------------------------------------------


class _WorksWhileItSleeps(ManualClock):
    """Has the queue do its work after so many seconds."""

    def __init__(self, after_seconds: float) -> None:
        super().__init__()
        self.after_seconds = after_seconds
        self.slept: list[float] = []
        self.api: MemoryApi | None = None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)
        if self.api is not None and self.monotonic() >= self.after_seconds:
            api, self.api = self.api, None
            run(api)


def waiting_api(after_seconds: float, wait_cap_seconds: float = 20) -> tuple[MemoryApi, _WorksWhileItSleeps]:
    clock = _WorksWhileItSleeps(after_seconds)
    api = MemoryApi(MemorySystem(jobs(), clock=clock), wait_cap_seconds=wait_cap_seconds)
    clock.api = api
    return api, clock


def test_a_wait_is_answered_as_soon_as_the_job_has_ended() -> None:
    api, clock = waiting_api(after_seconds=4)
    job_id = api.system.submit("half", '{"n":3}').job_id
    assert get(api, api.key(), f"/{job_id}?wait=15").document["state"] == "succeeded"
    assert 4 <= clock.monotonic() < 5.5
    assert clock.slept == sorted(clock.slept)


@pytest.mark.parametrize(
    ("asked", "cap", "waited"), [("3", 20, 3), ("0.25", 20, 0.25), ("500", 20, 20), ("inf", 20, 20), ("9", 0, 0)]
)
def test_a_wait_ends_with_its_time_or_the_cap(asked: str, cap: float, waited: float) -> None:
    api, clock = waiting_api(after_seconds=1_000, wait_cap_seconds=cap)
    job_id = api.system.submit("half", '{"n":3}').job_id
    assert get(api, api.key(), f"/{job_id}?wait={asked}").document["state"] == "queued"
    assert clock.monotonic() == pytest.approx(waited)


def test_a_wait_leaves_the_function_time_to_answer() -> None:
    class AlmostOver:
        def get_remaining_time_in_millis(self) -> int:
            return 5_000

    api, clock = waiting_api(after_seconds=1_000)
    job_id = api.system.submit("half", '{"n":3}').job_id
    event = {
        "rawPath": f"/v1/jobs/{job_id}",
        "rawQueryString": "wait=20",
        "headers": {"Authorization": f"Bearer {api.key()}"},
        "requestContext": {"stage": "$default", "http": {"method": "GET"}},
    }
    assert api.answer(event, AlmostOver())["statusCode"] == 200
    assert clock.monotonic() == pytest.approx(3)


@pytest.mark.parametrize("query", ["wait=soon", "wait=-1", "wait=nan", "wait=", "wait=1&wait=2", "weight=1"])
def test_a_wait_that_cannot_be_understood_is_refused(api: MemoryApi, key: str, query: str) -> None:
    answer = get(api, key, f"/{api.system.submit('half').job_id}?{query}")
    assert (answer.status, answer.kind) == (400, "invalid-query")


# --- listing ---------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_page_by_page_without_their_texts(api: MemoryApi, key: str) -> None:
    ids = []
    for n in range(5):
        ids.append(api.system.submit("half", f'{{"n":{n}}}').job_id)
        api.clock.sleep(1)
    seen: list[str] = []
    target = "?limit=2"
    for _ in range(3):
        page = get(api, key, target).document
        assert all("payload" not in job for job in page["jobs"])
        seen += [job["job_id"] for job in page["jobs"]]
        target = f"?limit=2&cursor={quote(page.get('cursor', ''))}"
    assert seen == ids[::-1]


def test_a_listing_can_be_narrowed_to_a_queue_and_a_state(api: MemoryApi, key: str) -> None:
    dead = dead_job(api)
    priority = api.system.submit("half", queue="priority").job_id
    assert [job["job_id"] for job in get(api, key, "?state=dead").document["jobs"]] == [dead]
    assert [job["job_id"] for job in get(api, key, "?queue=priority").document["jobs"]] == [priority]
    assert get(api, key, "?queue=priority&state=dead").document["jobs"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("state=asleep", 400),
        ("state=null", 400),
        ("limit=0", 400),
        ("limit=101", 400),
        ("limit=ten", 400),
        ("queue=a%20b", 400),
        ("colour=red", 400),
        ("queue=%ff", 400),
        ("&".join(f"p{n}=1" for n in range(30)), 400),
        ("queue=nowhere", 422),
    ],
)
def test_a_listing_that_cannot_be_understood_is_refused(api: MemoryApi, key: str, query: str, status: int) -> None:
    assert get(api, key, f"?{query}").status == status


@pytest.mark.parametrize("cursor", ["x", "e30", "%00", "a" * 2_048, "a" * 2_049])
def test_a_cursor_that_is_none_is_refused_without_a_fault(api: MemoryApi, key: str, cursor: str) -> None:
    assert get(api, key, f"?cursor={cursor}").status in (400, 422)


# --- cancel and redrive ----------------------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_and_stays_so(api: MemoryApi, key: str) -> None:
    job_id = api.system.submit("half", '{"n":3}').job_id
    for _ in range(2):
        answer = api.request("POST", f"/v1/jobs/{job_id}/cancel", key=key)
        assert (answer.status, answer.document["state"]) == (200, "cancelled")
    run(api)
    assert get(api, key, f"/{job_id}").document["state"] == "cancelled"


def test_a_dead_job_is_redriven_with_the_payload_it_had(api: MemoryApi, key: str) -> None:
    job_id = dead_job(api)
    answer = api.request("POST", f"/v1/jobs/{job_id}/redrive", key=key)
    assert (answer.status, answer.document["state"], answer.document["attempts"]) == (200, "scheduled", 0)
    assert answer.document["token"] >= 1
    assert answer.document["payload"] == {}


def test_a_dead_job_is_redriven_with_another_payload(api: MemoryApi, key: str) -> None:
    job_id = dead_job(api)
    answer = api.request("POST", f"/v1/jobs/{job_id}/redrive", '{"payload": {"reason": 1.10}}', key=key)
    assert answer.status == 200
    assert '"payload":{"reason": 1.10}' in answer.text


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ('{"payload":{"a":1,"a":2}}', 422, "/payload"),
        ('{"payload":' + "[" * 33 + "]" * 33 + "}", 422, "/payload"),
        ('{"payload":{}, "token": 0}', 422, "/token"),
        ('{"payload":"' + "x" * 33_000 + '"}', 413, None),
        ("[1]", 422, ""),
        ("nonsense", 400, None),
    ],
)
def test_a_redrive_with_a_malformed_payload_is_refused(
    api: MemoryApi, key: str, body: str, status: int, pointer: str | None
) -> None:
    job_id = dead_job(api)
    answer = api.request("POST", f"/v1/jobs/{job_id}/redrive", body, key=key)
    assert (answer.status, answer.document.get("pointer")) == (status, pointer)
    assert get(api, key, f"/{job_id}").document["state"] == "dead"


def test_only_a_dead_job_is_redriven(api: MemoryApi, key: str) -> None:
    answer = api.request("POST", f"/v1/jobs/{api.system.submit('half').job_id}/redrive", key=key)
    assert (answer.status, answer.kind) == (409, "not-dead")


# --- what belongs to nobody in particular ----------------------------------------------------------------------------


def test_c24_the_quarantine_tells_the_reason_and_keeps_the_bytes(api: MemoryApi, key: str) -> None:
    canary = b"canary of another tenant"
    set_aside(api, "49", data=canary)
    answer = api.request("GET", "/v1/quarantine?limit=5", key=key)
    [item] = answer.document["items"]
    assert (item["source"], item["position"], item["reason"], item["bytes"]) == ("log:0", "49", "not a log record", len(canary))
    assert "canary" not in answer.text


def test_a_tenant_sees_what_named_a_job_of_its_own_and_an_admin_sees_all(api: MemoryApi) -> None:
    for number, job_id in enumerate(
        [None, "no-such-job", submitted_id(api, api.key("theirs")), submitted_id(api, api.key("mine")), "key#0"]
    ):
        set_aside(api, str(number), job_id=job_id)

    def positions(*scopes: str, tenant: str = "mine") -> list[str]:
        answer = api.request("GET", "/v1/quarantine", key=api.key(tenant, scopes))
        return [item["position"] for item in answer.document["items"]]

    assert positions("operate") == ["3"]
    assert positions("operate", tenant="nobody") == []
    assert positions("operate", "admin") == ["4", "3", "2", "1", "0"]
    assert api.request("GET", "/v1/quarantine", key=api.key("mine", ["admin", "read", "submit"])).status == 403


def test_a_tenants_own_are_looked_for_among_the_newest_hundred(api: MemoryApi) -> None:
    mine = submitted_id(api, api.key("mine"))
    for number in range(102):
        set_aside(api, str(number), job_id=mine if number % 2 else None)

    def positions(limit: int) -> list[str]:
        answer = api.request("GET", f"/v1/quarantine?limit={limit}", key=api.key("mine", ["operate"]))
        return [item["position"] for item in answer.document["items"]]

    assert positions(2) == ["101", "99"]
    assert positions(100) == [str(number) for number in range(101, 1, -2)]


def set_aside(api: MemoryApi, position: str, *, data: bytes = b"x", job_id: str | None = None) -> None:
    api.system.clock.advance(0.001)
    item = SetAside(source="log:0", position=position, reason="not a log record", data=data, at=api.clock.now(), job_id=job_id)
    api.system.quarantine.put(item)


def submitted_id(api: MemoryApi, key: str) -> str:
    return str(api.request("POST", "/v1/jobs", '{"name":"half","payload":{"n":1}}', key=key).document["job_id"])


# --- another tenant's jobs -------------------------------------------------------------------------------------------


def test_c37_another_tenants_job_is_like_one_that_never_was(api: MemoryApi) -> None:
    theirs, mine = api.key("theirs"), api.key("mine")
    submitted = api.request("POST", "/v1/jobs", '{"name":"half","payload":{"n":1}}', key=theirs, idempotency_key="k")
    job_id = submitted.document["job_id"]
    for method, rest in (("GET", ""), ("GET", "?wait=5"), ("POST", "/cancel"), ("POST", "/redrive")):
        foreign = api.request(method, f"/v1/jobs/{job_id}{rest}", key=mine)
        unknown = api.request(method, f"/v1/jobs/{'a' * 26}{rest}", key=mine)
        malformed = api.request(method, f"/v1/jobs/%2e%2e{rest}", key=mine)
        assert foreign == unknown == malformed
        assert (foreign.status, foreign.kind) == (404, "not-found")
    assert api.clock.monotonic() == 0
    assert api.request("GET", f"/v1/jobs/{job_id}", key=theirs).document["state"] == "queued"


def test_c37_listings_cursors_and_keys_are_each_tenants_own(api: MemoryApi) -> None:
    theirs, mine = api.key("theirs"), api.key("mine")
    body = '{"name":"half","payload":{"n":1}}'
    first = api.request("POST", "/v1/jobs", body, key=theirs, idempotency_key="k").document
    api.request("POST", "/v1/jobs", body, key=theirs)
    own = api.request("POST", "/v1/jobs", body, key=mine, idempotency_key="k", x_tenant_id="theirs").document
    assert own["job_id"] != first["job_id"]
    assert own["repeated"] is False
    assert [job["job_id"] for job in get(api, mine, "").document["jobs"]] == [own["job_id"]]
    cursor = get(api, theirs, "?limit=1").document["cursor"]
    assert get(api, mine, f"?limit=1&cursor={quote(cursor)}").status in (400, 422)
