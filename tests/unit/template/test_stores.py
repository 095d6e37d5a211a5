"""Where state lies: keyed as the code expects, encrypted, closed to plain HTTP, and kept when it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ringfence.aws import rows

from .conftest import Stack

EXAMPLE_KEYS = {
    "UsersTable": "email",
    "ProfilesTable": "email",
    "AccountsTable": "account_id",
    "ChargesTable": "charge_id",
    "ModulesTable": "module",
    "PackageTotalsTable": "package",
}


def keys(schema: list[Mapping[str, str]]) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in schema}


def test_the_ledger_is_keyed_and_indexed_as_the_code_expects(any_stack: Stack) -> None:
    table = any_stack.properties("LedgerTable")
    indexes = {index["IndexName"]: keys(index["KeySchema"]) for index in table["GlobalSecondaryIndexes"]}
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}

    assert keys(table["KeySchema"]) == {"HASH": "pk", "RANGE": "sk"}
    assert indexes == {
        rows.LISTING_INDEX.name: {"HASH": rows.LISTING_INDEX.partition, "RANGE": rows.LISTING_INDEX.at},
        rows.DUE_INDEX: {"HASH": "dk", "RANGE": "da"},
        rows.DEAD_INDEX.name: {"HASH": rows.DEAD_INDEX.partition, "RANGE": rows.DEAD_INDEX.at},
    }
    assert types == {"pk": "S", "sk": "S", "lk": "S", "c": "N", "dk": "S", "da": "N", "xk": "S", "xa": "N"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}


def test_an_index_entry_is_never_rewritten_by_a_change_of_state(any_stack: Stack) -> None:
    for index in any_stack.properties("LedgerTable")["GlobalSecondaryIndexes"]:
        assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_the_ledger_can_be_restored_when_the_parameter_says_so(any_stack: Stack) -> None:
    recovery = any_stack.properties("LedgerTable")["PointInTimeRecoverySpecification"]

    assert recovery == {"PointInTimeRecoveryEnabled": {"Ref": "PointInTimeRecovery"}}


def test_example_tables_are_keyed_as_the_example_jobs_expect(stack: Stack) -> None:
    tables = stack.of_type("AWS::DynamoDB::Table")

    assert {name: keys(tables[name]["KeySchema"]) for name in EXAMPLE_KEYS} == {
        name: {"HASH": key} for name, key in EXAMPLE_KEYS.items()
    }


def test_every_table_is_on_demand_and_encrypted(any_stack: Stack) -> None:
    for table in any_stack.of_type("AWS::DynamoDB::Table").values():
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        assert table["SSESpecification"] == {"SSEEnabled": True}


def test_jobs_outlive_a_deleted_stack_and_accepted_jobs_a_replaced_log(any_stack: Stack) -> None:
    for store in ("LedgerTable", "Bucket"):
        assert any_stack.resources[store]["DeletionPolicy"] == "RetainExceptOnCreate"
        assert any_stack.resources[store]["UpdateReplacePolicy"] == "Retain"
    assert any_stack.resources["LogStream"]["UpdateReplacePolicy"] == "Retain"


def test_the_log_has_shards_only_where_they_are_paid_for(any_stack: Stack) -> None:
    stream = any_stack.properties("LogStream")

    assert stream["StreamModeDetails"] == {"StreamMode": {"Ref": "LogMode"}}
    assert ("ShardCount" in stream) == (any_stack.parameters["LogMode"] == "PROVISIONED")
    assert stream["StreamEncryption"] == {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}


def test_the_log_is_one_provisioned_shard_for_a_day_by_default(stack: Stack) -> None:
    stream = stack.properties("LogStream")

    assert stack.parameters["LogMode"] == "PROVISIONED"
    assert (stack.number(stream["ShardCount"]), stack.number(stream["RetentionPeriodHours"])) == (1, 24)


def test_queues_are_encrypted(any_stack: Stack) -> None:
    queues = any_stack.of_type("AWS::SQS::Queue")

    assert set(queues) == {*any_stack.queues.values(), "LastResortQueue"}
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())


def test_the_bucket_is_private_encrypted_and_forgets_nothing_but_unfinished_uploads(any_stack: Stack) -> None:
    bucket = any_stack.properties("Bucket")
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]

    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    blocked = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    assert bucket["PublicAccessBlockConfiguration"] == dict.fromkeys(blocked, True)
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    unfinished = {"Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    assert bucket["LifecycleConfiguration"]["Rules"] == [{"Id": "unfinished-uploads", **unfinished}]


@pytest.mark.parametrize(
    ("policy", "covered"),
    [
        ("QueuesWantTls", "*"),
        ("BucketWantsTls", [{"Fn::GetAtt": ["Bucket", "Arn"]}, {"Fn::Sub": "${Bucket.Arn}/*"}]),
    ],
)
def test_plain_http_is_refused(any_stack: Stack, policy: str, covered: Any) -> None:
    (statement,) = any_stack.properties(policy)["PolicyDocument"]["Statement"]

    assert statement["Effect"] == "Deny"
    assert statement["Principal"] == "*"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Action"] in ("sqs:*", "s3:*")
    assert statement["Resource"] == covered


def test_the_tls_policy_is_attached_to_every_queue(any_stack: Stack) -> None:
    attached = any_stack.properties("QueuesWantTls")["Queues"]

    assert {queue["Ref"] for queue in attached} == {*any_stack.queues.values(), "LastResortQueue"}
