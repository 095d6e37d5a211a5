"""Jobs as items, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.aws import rows
from ringfence.job import Job, PastAttempt, Progress, State

names = st.text(st.characters(codec="utf-8"), max_size=12)
times = st.integers(-(10**15), 10**15)
counts = st.integers(0, 10**6)
outcomes = st.sampled_from(["succeeded", "retry", "dead", "cancelled", "handed-over", "lost"]) | names
texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=40)

jobs = st.builds(
    Job,
    job_id=st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=26, max_size=26),
    tenant=names,
    queue=names,
    name=names,
    payload=texts,
    payload_sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    state=st.sampled_from(State),
    token=counts,
    attempt_id=st.none() | names,
    write_id=names,
    version=counts,
    ticket_id=st.none() | names,
    ticket_deliveries=counts,
    attempts=counts,
    max_attempts=counts,
    worker=st.none() | names,
    lease_until=st.none() | times,
    run_at=st.none() | times,
    due_id=st.none() | names,
    created_at=times,
    started_at=st.none() | times,
    finished_at=st.none() | times,
    progress=st.none() | st.builds(Progress, counts, counts),
    checkpoint=texts,
    result=texts,
    error=texts,
    cancel_requested=st.booleans(),
    hand_overs=counts,
    history=st.lists(st.builds(PastAttempt, counts, times, times, outcomes), max_size=3).map(tuple),
    traceparent=st.none() | names,
    expires_at=st.none() | times,
)


@given(jobs)
def test_every_job_comes_back_as_it_went_in(job: Job) -> None:
    assert rows.from_item(rows.to_item(job, {}), {}) == job


@given(jobs, st.sets(st.sampled_from(list(rows.TEXTS))))
def test_texts_that_lie_apart_are_named_in_the_row(job: Job, fields: set[str]) -> None:
    apart = {field: f"sort key of {field}" for field in fields if getattr(job, field) is not None}
    item = rows.to_item(job, apart)
    assert rows.references(item) == apart
    assert rows.from_item(item, {field: getattr(job, field) for field in apart}) == job


def test_every_field_of_a_job_has_one_place() -> None:
    placed = [*rows.COLUMNS, *rows.TEXTS, "tenant", "queue"]
    assert sorted(placed) == sorted(field.name for field in dataclasses.fields(Job))


def test_attribute_names_are_short_and_their_own() -> None:
    """Names are part of the bill; `ttl` is what the template names for DynamoDB to delete by."""
    attributes = [column.attribute for column in rows.COLUMNS.values()]
    attributes += [name for text in rows.TEXTS.values() for name in (text.inline, text.reference)]
    attributes += ["sk", "lk", "dk", "xk"]
    assert len(attributes) == len(set(attributes))
    assert {name for name in attributes if len(name) > 2} == {"ttl"}


@given(names, names, names, names)
def test_index_keys_of_different_listings_differ(tenant: str, queue: str, other_tenant: str, other_queue: str) -> None:
    keys = {rows.listing_key(tenant, queue, 3), rows.listing_key(other_tenant, other_queue, 3)}
    assert len(keys) == len({(tenant, queue), (other_tenant, other_queue)})


@pytest.mark.parametrize(
    ("tenant", "queue", "key"), [("acme", "default", "acme#default#3"), ("a#b", "c%", "a%23b#c%25#3"), ("", "", "##3")]
)
def test_a_listing_key_tells_tenant_queue_and_shard(tenant: str, queue: str, key: str) -> None:
    assert rows.listing_key(tenant, queue, 3) == key


@pytest.mark.parametrize(
    ("value", "blank"), [(None, True), (False, True), ((), True), (0, False), ("", False), (True, False), (State.DEAD, False)]
)
def test_only_nothing_is_said_by_absence(value: Any, blank: bool) -> None:
    assert rows.is_blank(value) is blank
