"""CloudFormation's functions, as far as environments and event sources use them."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.local.intrinsics import Deciding, Filling, Unresolvable, references, substituted

PARAMETERS = {"Stage": "prod", "Count": "-1", "Empty": ""}
CONDITIONS = {
    "IsProd": {"Fn::Equals": [{"Ref": "Stage"}, "prod"]},
    "NotProd": {"Fn::Not": [{"Condition": "IsProd"}]},
    "Counted": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Count"}, -1]}]},
    "Both": {"Fn::And": [{"Condition": "IsProd"}, {"Condition": "Counted"}]},
    "Either": {"Fn::Or": [{"Condition": "IsProd"}, {"Condition": "Counted"}]},
    "Mapped": {"Fn::Equals": [{"Fn::FindInMap": ["Sizes", {"Ref": "Stage"}, "Memory"]}, 512]},
    "OnResource": {"Fn::Equals": [{"Ref": "Table"}, "x"]},
}
MAPPINGS = {"Sizes": {"prod": {"Memory": 512}, "24": {"Age": 82800}}}

FILLING = Filling(
    {
        ("Table", None): "table-1",
        ("Table", "Arn"): "arn:table-1",
        ("Nested", "Outputs.Url"): "http://nested",
        ("AWS::Region", None): "eu-west-1",
        ("Names", None): "a,b,c",
    }
)


@pytest.fixture
def deciding() -> Deciding:
    return Deciding(PARAMETERS, CONDITIONS, MAPPINGS)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [("IsProd", True), ("NotProd", False), ("Counted", False), ("Both", False), ("Either", True), ("Mapped", True)],
)
def test_conditions_rest_on_parameters(deciding: Deciding, condition: str, holds: bool) -> None:
    assert deciding.holds(condition) is holds


@pytest.mark.parametrize("condition", ["OnResource", "Unknown"])
def test_a_condition_that_cannot_be_known_is_refused(deciding: Deciding, condition: str) -> None:
    with pytest.raises(Unresolvable):
        deciding.holds(condition)


@pytest.mark.parametrize(
    ("value", "decided"),
    [
        ({"Fn::If": ["IsProd", "yes", "no"]}, "yes"),
        ({"Fn::If": ["NotProd", "yes", {"Fn::If": ["IsProd", {"Ref": "Table"}, "no"]}]}, {"Ref": "Table"}),
        ({"a": {"Fn::If": ["NotProd", 1, {"Ref": "AWS::NoValue"}]}, "b": 2}, {"b": 2}),
        ([1, {"Fn::If": ["IsProd", {"Ref": "AWS::NoValue"}, 2]}, 3], [1, 3]),
        ({"Fn::FindInMap": ["Sizes", "24", "Age"]}, 82800),
        ({"Fn::Sub": "${Table}"}, {"Fn::Sub": "${Table}"}),
        # A policy's own Condition is no condition of the template's.
        ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}}, {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}),
    ],
)
def test_what_a_condition_leaves_out_is_gone(deciding: Deciding, value: Any, decided: Any) -> None:
    assert deciding.decide(value) == decided


@pytest.mark.parametrize("value", [{"Fn::FindInMap": ["Sizes", "no", "Age"]}, {"Fn::ImportValue": "x"}, {"Fn::If": ["IsProd"]}])
def test_what_cannot_be_decided_is_refused(deciding: Deciding, value: Any) -> None:
    with pytest.raises(Unresolvable):
        deciding.decide(value)


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ({"Ref": "Table"}, "table-1"),
        ({"Fn::GetAtt": ["Table", "Arn"]}, "arn:table-1"),
        ({"Fn::GetAtt": "Table.Arn"}, "arn:table-1"),
        ({"Fn::GetAtt": ["Nested", "Outputs.Url"]}, "http://nested"),
        (
            {"Fn::Sub": '{"t": "${Table}", "a": "${Table.Arn}", "r": "${AWS::Region}"}'},
            '{"t": "table-1", "a": "arn:table-1", "r": "eu-west-1"}',
        ),
        ({"Fn::Sub": ["${!Literal}-${x}-${Table}", {"x": {"Ref": "AWS::Region"}}]}, "${Literal}-eu-west-1-table-1"),
        ({"Fn::Join": ["/", [{"Ref": "AWS::Region"}, 7, True]]}, "eu-west-1/7/true"),
        ({"Fn::Select": ["1", {"Fn::Split": [",", {"Ref": "Names"}]}]}, "b"),
        ([{"x": {"Ref": "Table"}}, 1, None], [{"x": "table-1"}, 1, None]),
    ],
)
def test_references_are_filled_in(value: Any, filled: Any) -> None:
    assert FILLING.fill(value) == filled


@pytest.mark.parametrize(
    "value", [{"Ref": "Unknown"}, {"Fn::GetAtt": ["Table", "Name"]}, {"Fn::GetAZs": ""}, {"Fn::Sub": "${Nobody.Arn}"}]
)
def test_what_nobody_knows_is_refused(value: Any) -> None:
    with pytest.raises(Unresolvable):
        FILLING.fill(value)


def test_some_references_are_put_in_and_all_others_stay() -> None:
    value = {
        "a": {"Ref": "F"},
        "b": [{"Fn::GetAtt": ["F", "Arn"]}, {"Fn::GetAtt": ["G", "Arn"]}, {"Ref": "G"}],
        "c": {"Fn::Sub": "/aws/lambda/${F} ${G} ${F.Arn} ${!F}"},
        "d": {"Fn::Sub": ["${F} ${x}", {"x": {"Ref": "F"}, "F": "local"}]},
    }
    assert substituted(value, {("F", None): "f-1", ("F", "Arn"): "arn:f"}) == {
        "a": "f-1",
        "b": ["arn:f", {"Fn::GetAtt": ["G", "Arn"]}, {"Ref": "G"}],
        "c": {"Fn::Sub": "/aws/lambda/f-1 ${G} arn:f ${!F}"},
        "d": {"Fn::Sub": ["${F} ${x}", {"x": "f-1", "F": "local"}]},
    }


def test_every_reference_is_found_once_where_it_stands() -> None:
    value = {
        "a": {"Ref": "One"},
        "b": [
            {"Fn::GetAtt": ["Two", "Arn"]},
            {"Fn::Sub": ["${Three} ${Four.Arn} ${local} ${!Not}", {"local": {"Ref": "Five"}}]},
        ],
        "c": {"Fn::Join": ["", [{"Ref": "Six"}, "Seven"]]},
    }
    assert sorted(references(value), key=str) == sorted(
        [("One", None), ("Two", "Arn"), ("Three", None), ("Four", "Arn"), ("Five", None), ("Six", None)], key=str
    )
