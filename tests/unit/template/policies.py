"""What IAM would say: the statements of the template's roles, evaluated for one request.

As much of IAM as the template uses; a statement with anything else in it is an error, so that nothing is passed over.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringfence.local.intrinsics import intrinsic
from ringfence.local.template import logical_id

from .conftest import Stack

LEADING_KEYS = "dynamodb:LeadingKeys"
"""The partition keys that a request names, of the table or of the index that it asks."""

PREFIX = "s3:prefix"

SOURCE_FUNCTION = "lambda:SourceFunctionArn"
"""Told by the calls of a function's code, and not by those that Lambda makes with its role.
https://docs.aws.amazon.com/lambda/latest/dg/permissions-source-function-arn.html"""


@dataclass(frozen=True)
class Request:
    """One call of AWS: ``resource`` is a logical id and what follows its ARN, as in ``Bucket/modules/a.py``."""

    action: str
    resource: str
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Condition key → the request's values of it."""


def allows(stack: Stack, role: str, request: Request) -> bool:
    """Whether one statement grants the request and none denies it."""
    effects = {statement["Effect"] for statement in statements(stack, role) if _applies(stack, statement, request)}
    return effects == {"Allow"}


def statements(stack: Stack, role: str) -> Iterator[Mapping[str, Any]]:
    """Of the role's own policies and of the template's that it carries."""
    properties = stack.properties(role)
    for policy in properties["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]
    for managed in properties["ManagedPolicyArns"]:
        # A policy of this very template, not one that AWS manages and may widen.
        yield from stack.properties(str(logical_id(managed)))["PolicyDocument"]["Statement"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def written(stack: Stack, resource: Any) -> str:
    """A statement's resource as `Request` writes it."""
    match intrinsic(resource):
        case ("Fn::GetAtt", [str(name), "Arn"]):
            beyond = ""
        case ("Fn::Sub", str(text)) if text.startswith("arn:"):
            return text
        case ("Fn::Sub", str(text)):
            name, _, beyond = text.removeprefix("${").partition(".Arn}")
        case _:
            assert resource == "*", resource
            return "*"
    assert name in stack.resources
    return name + beyond


def _applies(stack: Stack, statement: Mapping[str, Any], request: Request) -> bool:
    assert not statement.keys() - {"Effect", "Action", "NotAction", "Resource", "Condition"}
    named = any(_like(request.action, pattern) for pattern in listed(statement.get("Action", statement.get("NotAction"))))
    return (
        named == ("Action" in statement)
        and any(_like(request.resource, written(stack, resource)) for resource in listed(statement["Resource"]))
        and all(_holds(*each, request) for each in statement.get("Condition", {}).items())
    )


def _holds(operator: str, wanted: Mapping[str, Any], request: Request) -> bool:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html"""
    for key, patterns in wanted.items():
        values = request.context.get(key, ())
        match operator:
            case "ForAnyValue:StringLike":
                holds = any(_like(value, pattern) for value in values for pattern in listed(patterns))
            case "ForAllValues:StringLike":
                holds = all(any(_like(value, pattern) for pattern in listed(patterns)) for value in values)
            case "StringLike":
                assert len(values) <= 1, f"{key} has one value"
                holds = any(_like(value, pattern) for value in values for pattern in listed(patterns))
            case "Null":
                holds = (not values) == (patterns == "true")
            case _:
                raise AssertionError(f"{operator} is not evaluated here")
        if not holds:
            return False
    return True


def _like(value: str, pattern: str) -> bool:
    """``*`` is any number of characters, ``?`` is one; nothing else has a meaning."""
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, value, re.DOTALL) is not None
