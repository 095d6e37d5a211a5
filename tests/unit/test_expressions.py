"""Conditions and changes as DynamoDB's expressions. What they do to rows is the ledger's contract; here is what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.dynamodb.comparisons import get_filter_expression
from moto.dynamodb.models.dynamo_type import DynamoType, Item

from ringfence import transitions
from ringfence.aws.expressions import Placeholders, row_condition, update_arguments
from ringfence.aws.rows import to_item
from ringfence.change import All, Any_, AtMost, Below, Change, Condition, Is, OneOf, Unset, holds
from ringfence.job import Job, State
from ringfence.wire import Ticket

JOB = Job(
    job_id="a" * 26,
    tenant="acme",
    queue="default",
    name="index",
    payload="{}",
    payload_sha256="00" * 32,
    state=State.RUNNING,
    token=3,
    attempt_id="attempt",
    write_id="w1",
    version=7,
)

small = st.integers(0, 3)
leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Is, st.just("state"), st.sampled_from(State)),
    st.builds(Is, st.sampled_from(["token", "attempts", "version"]), small),
    st.builds(Is, st.sampled_from(["attempt_id", "due_id"]), st.sampled_from(["x", "y", None])),
    st.builds(Is, st.just("cancel_requested"), st.booleans()),
    st.builds(OneOf, st.just("state"), st.lists(st.sampled_from(State), max_size=3).map(tuple)),
    st.builds(OneOf, st.just("due_id"), st.lists(st.sampled_from(["x", None]), max_size=2).map(tuple)),
    st.builds(Unset, st.sampled_from(["run_at", "due_id", "cancel_requested", "attempt_id"])),
    st.builds(AtMost, st.just("run_at"), small),
    st.just(Below("attempts", "max_attempts")),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(All, st.lists(inner, max_size=3).map(tuple)), st.builds(Any_, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
rows_of_all_kinds = st.builds(
    dataclasses.replace,
    st.just(JOB),
    state=st.sampled_from(State),
    token=small,
    attempts=small,
    max_attempts=small,
    version=small,
    attempt_id=st.sampled_from(["x", "y", None]),
    due_id=st.sampled_from(["x", "y", None]),
    run_at=st.none() | small,
    cancel_requested=st.booleans(),
)


@given(conditions, rows_of_all_kinds)
def test_the_expression_holds_where_the_rule_does(condition: Condition, job: Job) -> None:
    """The memory ledger asks `holds`, DynamoDB is asked this; moto's reader of expressions stands in for it."""
    placeholders = Placeholders()
    expression = row_condition(condition, placeholders, expired_before_seconds=None)
    arguments = placeholders.arguments()
    asked = get_filter_expression(expression, arguments["ExpressionAttributeNames"], arguments.get("ExpressionAttributeValues"))
    assert asked.expr(Item(DynamoType({"S": job.job_id}), None, to_item(job, {}))) == holds(condition, job)


def spelled_out(arguments: dict[str, Any], expression: str) -> str:
    """The expression with names and values in place of their placeholders."""
    text: str = arguments[expression]
    # The longest first, or #1 would be found in #10.
    for placeholder, name in reversed(arguments.get("ExpressionAttributeNames", {}).items()):
        text = text.replace(placeholder, name)
    for placeholder, value in reversed(arguments.get("ExpressionAttributeValues", {}).items()):
        text = text.replace(placeholder, str(next(iter(value.values()))))
    return text


def test_an_owners_write_names_token_attempt_and_state() -> None:
    change = transitions.heartbeat(JOB, write_id="w2", lease_until=9, progress=None)
    arguments = update_arguments(change, {}, expired_before_seconds=None)
    assert spelled_out(arguments, "ConditionExpression") == "attribute_exists(pk) AND (t = 3 AND a = attempt AND s = r)"
    assert spelled_out(arguments, "UpdateExpression") == "SET l = 9, w = w2, v = v + 1"


def test_a_claim_names_all_that_may_stand_in_its_way() -> None:
    owner = transitions.Owner(
        ticket=Ticket(ticket_id="t", job_id=JOB.job_id, tenant="acme"),
        deliveries=1,
        attempt_id="x",
        worker="me",
        now=5,
        lease_until=8,
    )
    arguments = update_arguments(transitions.claim_waiting(owner, write_id="w2"), {}, expired_before_seconds=77)
    assert spelled_out(arguments, "ConditionExpression") == (
        "attribute_exists(pk) AND (attribute_not_exists(ttl) OR ttl >= 77) AND "
        "((s = s OR s = q) AND (attribute_not_exists(da) OR da <= 5) AND u < m AND attribute_not_exists(q))"
    )
    update = spelled_out(arguments, "UpdateExpression")
    assert update.endswith("t = t + 1, u = u + 1, v = v + 1 REMOVE xk")


def test_a_field_set_to_nothing_is_removed_with_its_index_entry() -> None:
    change = transitions.succeed(JOB, "{}", write_id="w2", now=5, expires_at=9)
    update = spelled_out(update_arguments(change, {}, expired_before_seconds=None), "UpdateExpression")
    removed = set(update.partition(" REMOVE ")[2].split(", "))
    assert removed == {"a", "l", "da", "i", "z", "Z", "e", "E", "R", "dk", "xk"}


def test_a_text_that_lies_apart_leaves_no_old_one_in_the_row() -> None:
    change = transitions.checkpoint(JOB, "[1]", write_id="w2")
    inline = spelled_out(update_arguments(change, {}, expired_before_seconds=None), "UpdateExpression")
    apart = spelled_out(update_arguments(change, {"checkpoint": "zw2"}, expired_before_seconds=None), "UpdateExpression")
    assert "z = [1]" in inline
    assert inline.endswith("REMOVE Z")
    assert "Z = zw2" in apart
    assert apart.endswith("REMOVE z")


def test_a_dead_job_cannot_be_listed_without_its_tenant() -> None:
    change = Change(job_id="a", write_id="w", condition=Unset("due_id"), set={"state": State.DEAD})
    with pytest.raises(ValueError, match="tenant"):
        update_arguments(change, {}, expired_before_seconds=None)


@pytest.mark.parametrize("field", ["payload", "error", "tenant", "nonsense"])
def test_a_condition_on_what_may_not_lie_in_the_row_is_a_mistake(field: str) -> None:
    change = Change(job_id="a", write_id="w", condition=Is(field, "x"), set={})
    with pytest.raises(KeyError):
        update_arguments(change, {}, expired_before_seconds=None)
