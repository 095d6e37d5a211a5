"""What brings work to the functions: mappings and schedules that lose nothing, start at the beginning and report in part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfence.local.template import logical_id

from .conftest import Stack

HOUR_SECONDS = 3600
FOURTEEN_DAYS_SECONDS = 14 * 24 * HOUR_SECONDS


def mappings_of(stack: Stack, function: str) -> list[Mapping[str, Any]]:
    mappings = stack.of_type("AWS::Lambda::EventSourceMapping").values()
    return [mapping for mapping in mappings if logical_id(mapping["FunctionName"]) == function]


def log_mapping(stack: Stack) -> Mapping[str, Any]:
    (mapping,) = mappings_of(stack, "RelayFunction")
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": ["LogStream", "Arn"]}
    return mapping


def test_c11_every_mapping_takes_partial_batch_failures(any_stack: Stack) -> None:
    mappings = any_stack.of_type("AWS::Lambda::EventSourceMapping")

    assert len(mappings) == 1 + len(any_stack.queues_on_sqs)
    assert all(mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for mapping in mappings.values())


def test_c11_the_relay_reads_the_log_from_its_beginning_and_in_order(any_stack: Stack) -> None:
    mapping = log_mapping(any_stack)

    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["ParallelizationFactor"] == 1
    assert mapping["BatchSize"] == 100
    assert mapping["MaximumBatchingWindowInSeconds"] <= 1


def test_c11_the_relay_gives_up_only_to_the_bucket_and_before_the_log_forgets(any_stack: Stack) -> None:
    mapping = log_mapping(any_stack)
    retention_seconds = any_stack.number(any_stack.properties("LogStream")["RetentionPeriodHours"]) * HOUR_SECONDS

    assert mapping["MaximumRetryAttempts"] == -1
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": {"Fn::GetAtt": ["Bucket", "Arn"]}}}
    assert retention_seconds - HOUR_SECONDS <= mapping["MaximumRecordAgeInSeconds"] < retention_seconds


def test_a_round_leaves_alone_what_the_log_may_still_deliver(any_stack: Stack) -> None:
    variables = any_stack.properties("TimersFunction")["Environment"]["Variables"]
    after_hours = any_stack.number(variables["RINGFENCE_RECONCILE_AFTER_HOURS"])

    assert after_hours == any_stack.number(any_stack.properties("LogStream")["RetentionPeriodHours"]) + 1


def test_a_finished_job_outlives_every_record_of_the_log(any_stack: Stack) -> None:
    declared = any_stack.template.declared
    longest_retention_hours = max(int(hours) for hours in declared["LogRetentionHours"]["AllowedValues"])

    assert declared["JobRetentionDays"]["MinValue"] * 24 > longest_retention_hours
    assert declared["JobRetentionDays"]["Default"] >= declared["JobRetentionDays"]["MinValue"]


def test_c11_a_queue_hides_a_ticket_for_as_long_as_the_worker_may_run(any_stack: Stack) -> None:
    timeout_seconds = any_stack.number(any_stack.properties("WorkerFunction")["Timeout"])
    sources = [logical_id(mapping["EventSourceArn"]) for mapping in mappings_of(any_stack, "WorkerFunction")]

    assert sorted(map(str, sources)) == sorted(any_stack.queues_on_sqs.values())
    for queue in sources:
        assert any_stack.number(any_stack.properties(str(queue))["VisibilityTimeout"]) >= timeout_seconds


def test_workers_are_bounded_per_queue_and_take_ten_tickets(any_stack: Stack) -> None:
    for mapping in mappings_of(any_stack, "WorkerFunction"):
        assert mapping["BatchSize"] == 10
        assert any_stack.number(mapping["ScalingConfig"]["MaximumConcurrency"]) >= 2


def test_defaults_leave_room_in_a_new_account_of_ten_executions(stack: Stack) -> None:
    """As long as there is any: no mapping takes less than two, and so four queues are too many for it."""
    mappings = mappings_of(stack, "WorkerFunction")
    most = [stack.number(mapping["ScalingConfig"]["MaximumConcurrency"]) for mapping in mappings]
    relay, timers, at_least_for_the_gateway = 1, 1, 2

    there_is_room = sum(most) + relay + timers + at_least_for_the_gateway <= 10
    assert there_is_room or set(most) == {2}, "lower the Default of each parameter …QueueMaximumConcurrency to 2"
    functions = stack.of_type("AWS::Lambda::Function").values()
    assert not any("ReservedConcurrentExecutions" in function for function in functions)


def test_reserved_concurrency_is_what_the_parameter_says(any_stack: Stack) -> None:
    for part in ("Gateway", "Relay", "Worker", "Timers"):
        wanted = int(any_stack.parameters[f"{part}ReservedConcurrency"])
        properties = any_stack.properties(f"{part}Function")
        reserved = properties.get("ReservedConcurrentExecutions")
        assert (None if reserved is None else any_stack.number(reserved)) == (None if wanted == -1 else wanted)


def test_c11_a_ticket_lives_for_fourteen_days_and_a_thousand_receives(any_stack: Stack) -> None:
    last_resort = {"Fn::GetAtt": ["LastResortQueue", "Arn"]}
    for queue in any_stack.queues.values():
        assert any_stack.properties(queue)["RedrivePolicy"] == {"deadLetterTargetArn": last_resort, "maxReceiveCount": 1000}
    for queue in (*any_stack.queues.values(), "LastResortQueue"):
        assert any_stack.properties(queue)["MessageRetentionPeriod"] == FOURTEEN_DAYS_SECONDS


def test_no_other_queue_gives_up_its_messages_to_one_of_jobs(any_stack: Stack) -> None:
    for queue in any_stack.queues.values():
        assert any_stack.properties(queue)["RedriveAllowPolicy"] == {"redrivePermission": "denyAll"}


def test_the_timers_run_each_minute_and_never_into_the_next(any_stack: Stack) -> None:
    (rule,) = any_stack.of_type("AWS::Events::Rule").values()
    (retries,) = any_stack.of_type("AWS::Lambda::EventInvokeConfig").values()

    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert [logical_id(target["Arn"]) for target in rule["Targets"]] == ["TimersFunction"]
    assert any_stack.properties("TimersFunction")["Timeout"] < 60
    assert any_stack.properties("LastResortQueue")["VisibilityTimeout"] >= any_stack.properties("TimersFunction")["Timeout"]
    assert logical_id(retries["FunctionName"]) == "TimersFunction"
    assert retries["MaximumRetryAttempts"] == 0
