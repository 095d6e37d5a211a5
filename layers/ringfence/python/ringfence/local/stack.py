"""The stack: the template's resources, created on an emulator by its CloudFormation, and what it says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ringfence.errors import RingfenceError
from ringfence.local import left_out
from ringfence.local.endpoint import Endpoint
from ringfence.local.intrinsics import Filling, Reference, references, substituted
from ringfence.local.tables_elsewhere import create_tables, delete_tables, require_dynamodb, tables_elsewhere
from ringfence.local.template import BadTemplate, Template

_CREATE_SECONDS = 180.0
_LOOK_SECONDS = 0.1

_ASK_PREFIX = "RingfenceDevAsks"
"""Outputs of ours: the emulator is asked for an id or attribute by giving its template an output of that value."""


class StackFailed(RingfenceError):
    """The emulator could not create the stack."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A created stack. ``resources`` is logical id → physical id, of what the emulator was given."""

    name: str
    resources: Mapping[str, str]
    buckets: Sequence[str]
    """Physical ids of its buckets."""
    filling: Filling
    tables_elsewhere: Sequence[str] = ()
    """Names of the tables that are not in the emulator's stack."""

    def fill(self, value: Any) -> Any:
        """``value`` of the template with everything it refers to put in."""
        return self.filling.fill(value)


def create_stack(endpoint: Endpoint, template: Template, name: str, wanted: Iterable[Any]) -> Stack:
    """Create the stack and wait for it. ``wanted`` are parts of the template that `Stack.fill` will be asked to fill.

    Raises `StackFailed`, also when a resource was silently not created. What was created until then is deleted.
    """
    pseudo = _pseudo_parameters(endpoint, name)
    functions = _function_names(template, name, pseudo["AWS::AccountId"], endpoint.region)
    kept = left_out.keep(substituted(template.resources, functions), endpoint.kind)
    known: dict[Reference, Any] = {(key, None): value for key, value in {**template.parameters, **pseudo}.items()}
    known |= functions
    asked = sorted({one for one in references(list(wanted)) if one not in known}, key=str)
    for resource, _ in asked:
        if resource not in kept:
            why = template.resources.get(resource)
            told = left_out.reason(why["Type"], endpoint.kind) if why else "the template has no such resource"
            raise BadTemplate(f"a function or event source refers to {resource}, which {endpoint.kind} is not given: {told}")
    require_dynamodb(endpoint, kept)
    elsewhere = tables_elsewhere(endpoint, name, kept)
    try:
        tables = create_tables(endpoint, elsewhere, kept, Filling(known))
        known |= tables
        given = {each: substituted(resource, tables) for each, resource in kept.items() if each not in elsewhere}
        known |= _create(endpoint, name, template, given, [one for one in asked if one not in known])
        physical = _created(endpoint, name, given)
    except BaseException:
        delete_stack(endpoint, Stack(name, elsewhere, [], Filling(known), list(elsewhere.values())))
        raise
    buckets = [physical[each] for each, resource in given.items() if resource["Type"] == "AWS::S3::Bucket"]
    return Stack(name, {**physical, **elsewhere}, buckets, Filling(known), list(elsewhere.values()))


def delete_stack(endpoint: Endpoint, stack: Stack) -> None:
    """Take the stack away from an emulator that goes on without us; what does not go is left behind."""
    with suppress(ClientError, BotoCoreError):
        s3 = endpoint.client("s3")
        for bucket in stack.buckets:
            # A bucket goes only when it is empty.
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for item in page.get("Contents", ()):
                    s3.delete_object(Bucket=bucket, Key=item["Key"])
    with suppress(ClientError, BotoCoreError):
        endpoint.client("cloudformation").delete_stack(StackName=stack.name)
    delete_tables(endpoint, stack.tables_elsewhere)


def _pseudo_parameters(endpoint: Endpoint, name: str) -> dict[str, str]:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/pseudo-parameter-reference.html"""
    return {
        "AWS::AccountId": endpoint.client("sts").get_caller_identity()["Account"],
        "AWS::Partition": "aws",
        "AWS::Region": endpoint.region,
        "AWS::StackName": name,
        "AWS::URLSuffix": "amazonaws.com",
    }


def _function_names(template: Template, stack: str, account: str, region: str) -> dict[Reference, str]:
    """The functions' names and ARNs, as we give them: they run here, and the emulator has none of them."""
    named: dict[Reference, str] = {}
    for function in template.function_ids:
        named[function, None] = f"{stack}-{function}"
        named[function, "Arn"] = f"arn:aws:lambda:{region}:{account}:function:{stack}-{function}"
    return named


def _reference(reference: Reference) -> dict[str, Any]:
    name, attribute = reference
    return {"Ref": name} if attribute is None else {"Fn::GetAtt": [name, attribute]}


def _create(
    endpoint: Endpoint, name: str, template: Template, resources: Mapping[str, Any], asked: Sequence[Reference]
) -> dict[Reference, str]:
    """Create the stack and wait. Returns what was asked."""
    cloudformation = endpoint.client("cloudformation")
    body = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": template.declared,
        "Mappings": template.mappings,
        "Resources": resources,
        "Outputs": {f"{_ASK_PREFIX}{n}": {"Value": _reference(one)} for n, one in enumerate(asked)},
    }
    try:
        cloudformation.create_stack(
            StackName=name,
            TemplateBody=json.dumps({key: part for key, part in body.items() if part}),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in template.parameters.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
            OnFailure="DO_NOTHING",
        )
    except ClientError as fault:
        raise StackFailed(f"the emulator does not take the template: {fault}") from None
    outputs = _wait(cloudformation, name)
    return {one: outputs[f"{_ASK_PREFIX}{n}"] for n, one in enumerate(asked)}


def _wait(cloudformation: Any, name: str) -> dict[str, str]:
    """Wait until the stack is complete. Returns its outputs."""
    deadline = time.monotonic() + _CREATE_SECONDS
    while True:
        described = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        status = described["StackStatus"]
        if status == "CREATE_COMPLETE":
            return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", ())}
        if not status.endswith("_IN_PROGRESS"):
            raise StackFailed(f"the stack is {status}: {_failures(cloudformation, name)}")
        if time.monotonic() > deadline:
            raise StackFailed(f"the stack is still {status} after {_CREATE_SECONDS:g} s: {_unfinished(cloudformation, name)}")
        time.sleep(_LOOK_SECONDS)


def _failures(cloudformation: Any, name: str) -> str:
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
    return "; ".join(
        f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}" for event in failed
    )


def _unfinished(cloudformation: Any, name: str) -> str:
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    newest: dict[str, Mapping[str, Any]] = {}
    for event in events:  # the newest comes first
        newest.setdefault(event["LogicalResourceId"], event)
    waiting = [each for each, event in newest.items() if event["ResourceStatus"].endswith("_IN_PROGRESS") and each != name]
    return f"it waits for {', '.join(waiting) or 'nothing that it tells of'}"


def _created(endpoint: Endpoint, name: str, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Logical → physical id. Raises `StackFailed` if one of ``kept`` is not there: emulators skip in silence."""
    described = endpoint.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    there = {
        resource["LogicalResourceId"]: resource.get("PhysicalResourceId", "")
        for resource in described
        if resource.get("ResourceStatus") == "CREATE_COMPLETE" and "LogicalResourceId" in resource
    }
    missing = [f"{each} ({kept[each]['Type']})" for each in kept if each not in there]
    if missing:
        raise StackFailed(f"{endpoint.kind} says the stack is complete, but did not create {', '.join(missing)}")
    return there
