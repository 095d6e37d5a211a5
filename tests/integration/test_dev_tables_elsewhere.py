"""DynamoDB at another address than the emulator: LocalStack without Java has none of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

import pytest

from ringfence.local.emulator import Emulator
from ringfence.local.endpoint import REGION, Endpoint
from ringfence.local.stack import StackFailed, create_stack, delete_stack
from ringfence.local.tables_elsewhere import NoDynamoDb
from ringfence.local.template import Template, read_template

from .conftest import TEMPLATE

WANTED = [{"Ref": "Table"}, {"Fn::GetAtt": ["Table", "Arn"]}, {"Ref": "Queue"}]


@pytest.fixture(scope="module")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two that know nothing of each other: one for the stack, one for the tables."""
    folder = tmp_path_factory.mktemp("emulators")
    ended: SimpleQueue[str] = SimpleQueue()
    pair = [Emulator("ministack", REGION, folder / f"{name}.log", ended.put, ended.put) for name in ("stack", "tables")]
    try:
        for each in pair:
            each.start()
        for each in pair:
            each.wait_ready()
        yield pair[0].endpoint, pair[1].endpoint
    finally:
        for each in pair:
            each.stop()


@pytest.fixture
def template() -> Template:
    return read_template(TEMPLATE, {}, REGION)


def with_tables_at(stack: Endpoint, url: str) -> Endpoint:
    return Endpoint(stack.kind, stack.url, stack.region, {"dynamodb": url})


def tables_of(endpoint: Endpoint) -> list[str]:
    return list(endpoint.client("dynamodb").list_tables()["TableNames"])


def test_tables_are_created_there_and_the_stack_names_them(emulators: tuple[Endpoint, Endpoint], template: Template) -> None:
    here, there = emulators
    both = with_tables_at(here, there.url)
    stack = create_stack(both, template, "apart", WANTED)
    assert (tables_of(here), tables_of(there)) == ([], ["apart-Table"])
    assert stack.resources["Table"] == stack.fill({"Ref": "Table"}) == "apart-Table"
    arn = stack.fill({"Fn::GetAtt": ["Table", "Arn"]})
    assert arn == there.client("dynamodb").describe_table(TableName="apart-Table")["Table"]["TableArn"]
    policy = here.client("iam").get_role_policy(RoleName=stack.resources["Role"], PolicyName="table")["PolicyDocument"]
    assert arn in json.dumps(policy)
    delete_stack(both, stack)
    assert tables_of(there) == []


def test_a_stack_that_fails_takes_its_tables_along(emulators: tuple[Endpoint, Endpoint], template: Template) -> None:
    here, there = emulators
    unknown = {"Unknown": {"Type": "AWS::Nowhere::Thing", "Properties": {}}}
    broken = replace(template, resources={**template.resources, **unknown})
    with pytest.raises(StackFailed, match="AWS::Nowhere::Thing"):
        create_stack(with_tables_at(here, there.url), broken, "broken", WANTED)
    assert tables_of(there) == []
    assert here.client("sqs").list_queues().get("QueueUrls", []) == []


def test_a_dynamodb_that_does_not_answer_is_told_at_once_and_so_is_the_way_out(
    emulators: tuple[Endpoint, Endpoint], template: Template
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(NoDynamoDb, match=r"AWS_ENDPOINT_URL_DYNAMODB"):
        create_stack(with_tables_at(emulators[0], url), template, "nowhere", WANTED)
