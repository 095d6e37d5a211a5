"""How HTTP reaches the gateway: exactly one way, and open only as far as API keys are asked for behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from ringfence.local.intrinsics import references
from ringfence.local.template import logical_id

from .conftest import TEMPLATE, Stack

API_GATEWAY_LIMIT_SECONDS = 30


def test_there_is_exactly_one_front_door_and_it_leads_to_the_gateway(any_stack: Stack) -> None:
    urls = any_stack.of_type("AWS::Lambda::Url")
    integrations = any_stack.of_type("AWS::ApiGatewayV2::Integration")

    if any_stack.parameters["FrontDoor"] == "http-api":
        assert not urls
        (integration,) = integrations.values()
        assert ("GatewayFunction", "Arn") in set(references(integration["IntegrationUri"]))
    else:
        assert not any_stack.of_type(*(f"AWS::ApiGatewayV2::{kind}" for kind in ("Api", "Integration", "Route", "Stage")))
        (url,) = urls.values()
        assert logical_id(url["TargetFunctionArn"]) == "GatewayFunction"


def test_the_http_api_sends_every_request_on_as_a_function_url_would(stack: Stack) -> None:
    (integration,) = stack.of_type("AWS::ApiGatewayV2::Integration").values()
    (route,) = stack.of_type("AWS::ApiGatewayV2::Route").values()
    (stage,) = stack.of_type("AWS::ApiGatewayV2::Stage").values()

    assert integration["PayloadFormatVersion"] == "2.0"
    assert (route["RouteKey"], stage["StageName"], stage["AutoDeploy"]) == ("$default", "$default", True)


def test_the_http_api_sheds_load_as_the_parameters_say(stack: Stack) -> None:
    (stage,) = stack.of_type("AWS::ApiGatewayV2::Stage").values()
    limits = {name: stack.number(limit) for name, limit in stage["DefaultRouteSettings"].items()}

    assert limits == {"ThrottlingRateLimit": 1000, "ThrottlingBurstLimit": 1000}
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == {"Ref": "RequestsPerSecond"}
    assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == {"Ref": "RequestBurst"}


def test_sam_local_finds_the_http_api() -> None:
    # It reads either SAM's own APIs or CloudFormation's, by the type of the first function or API in the template.
    types = [resource["Type"] for resource in yaml_parse(TEMPLATE.read_text(encoding="utf-8"))["Resources"].values()]

    assert types.index("AWS::ApiGatewayV2::Api") < types.index("AWS::Serverless::Function")


def test_only_this_http_api_may_invoke_the_gateway(stack: Stack) -> None:
    (permission,) = permissions_of_gateway(stack)

    assert permission["Action"] == "lambda:InvokeFunction"
    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert ("HttpApi", None) in set(references(permission["SourceArn"]))


def test_a_public_function_url_has_both_permissions_it_needs(function_url_stack: Stack) -> None:
    stack = function_url_stack
    (url,) = stack.of_type("AWS::Lambda::Url").values()
    gateway = {"FunctionName": {"Ref": "GatewayFunction"}, "Principal": "*"}

    assert url["AuthType"] == "NONE"
    assert permissions_of_gateway(stack) == [
        {**gateway, "Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": "NONE"},
        {**gateway, "Action": "lambda:InvokeFunction", "InvokedViaFunctionUrl": True},
    ]


def test_the_gateway_answers_before_api_gateway_gives_up(any_stack: Stack) -> None:
    assert any_stack.properties("GatewayFunction")["Timeout"] < API_GATEWAY_LIMIT_SECONDS


def test_a_deployed_gateway_cannot_be_told_to_ask_for_no_keys(any_stack: Stack) -> None:
    variables = any_stack.properties("GatewayFunction")["Environment"]["Variables"]

    assert variables["RINGFENCE_AUTH"] == {"Ref": "AuthMode"}
    assert any_stack.template.declared["AuthMode"]["AllowedValues"] == ["api-key"]


def test_the_api_url_is_that_of_the_front_door(stack: Stack, function_url_stack: Stack) -> None:
    assert stack.template.outputs["ApiUrl"]["Value"] == {"Fn::GetAtt": ["HttpApi", "ApiEndpoint"]}
    assert function_url_stack.template.outputs["ApiUrl"]["Value"] == {"Fn::GetAtt": ["GatewayUrl", "FunctionUrl"]}


def permissions_of_gateway(stack: Stack) -> list[Mapping[str, Any]]:
    permissions = stack.of_type("AWS::Lambda::Permission").values()
    return [permission for permission in permissions if logical_id(permission["FunctionName"]) == "GatewayFunction"]
