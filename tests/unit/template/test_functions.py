"""What the functions are told, run on and are built from."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import pytest
from samtranslator.yaml_helper import yaml_parse

from ringfence.local.intrinsics import Filling, references
from ringfence.settings import Settings

from .conftest import ALONGSIDE, DECIDING, TEMPLATE, Stack, combinations

FUNCTIONS = ("GatewayFunction", "RelayFunction", "WorkerFunction", "TimersFunction")


def settings_of(stack: Stack, function: str) -> Settings:
    """Read as the function reads them; every resource's physical id is its logical one in capitals."""
    variables = stack.properties(function)["Environment"]["Variables"]
    values = {(name, attribute): name.upper() for name, attribute in references(variables)}
    values |= {(name, None): value for name, value in stack.parameters.items()}
    filled: Mapping[str, object] = Filling(values).fill(variables)
    return Settings.from_environment({name: str(value) for name, value in filled.items()})


def url_of(stack: Stack, name: str) -> str:
    """Where a function is to find this queue."""
    if name in stack.queues_on_sqs:
        return stack.queues[name].upper()
    query = "?cluster=1" if stack.parameters["RedisMode"] == "cluster" else ""
    return f"{stack.parameters['RedisUrl']}/AWS::STACKNAME-{name}{query}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_finds_its_resources(any_stack: Stack, function: str) -> None:
    settings = settings_of(any_stack, function)

    assert settings.ledger_table == "LEDGERTABLE"
    assert settings.stream == "LOGSTREAM"
    assert settings.queues == {name: url_of(any_stack, name) for name in any_stack.queues}
    assert "default" in settings.queues
    assert settings.last_resort_queue == "LASTRESORTQUEUE"
    assert settings.bucket == "BUCKET"
    assert (settings.auth, settings.wait_cap_seconds, settings.retention_days) == ("api-key", 0, 7)
    assert (settings.worker_threads, settings.lease_seconds) == (4, 30)
    assert settings.endpoint_url == (any_stack.parameters["EndpointUrl"] or None)


@pytest.mark.parametrize(
    ("parameter", "variable"),
    [
        ("WaitCapSeconds", "RINGFENCE_WAIT_CAP_SECONDS"),
        ("WorkerThreads", "RINGFENCE_WORKER_THREADS"),
        ("LeaseSeconds", "RINGFENCE_LEASE_SECONDS"),
        ("JobRetentionDays", "RINGFENCE_RETENTION_DAYS"),
        ("ReconcileEveryHours", "RINGFENCE_RECONCILE_EVERY_HOURS"),
    ],
)
def test_what_a_parameter_allows_the_functions_take(stack: Stack, parameter: str, variable: str) -> None:
    needed = {"RINGFENCE_LEDGER_TABLE": "ledger", "RINGFENCE_STREAM": "log"}
    assert stack.properties("TimersFunction")["Environment"]["Variables"][variable] == {"Ref": parameter}

    for bound in ("MinValue", "Default", "MaxValue"):
        Settings.from_environment({**needed, variable: str(stack.template.declared[parameter][bound])})


def test_the_worker_finds_the_jobs_and_the_tables_that_there_are(any_stack: Stack) -> None:
    settings = settings_of(any_stack, "WorkerFunction")
    examples = {"Users", "Profiles", "Accounts", "Charges", "Modules", "PackageTotals"}
    of_examples = examples if any_stack.parameters["ExampleTables"] == "true" else set()

    assert settings.app == "jobs:app"
    assert settings.tables == {name: table.upper() for name, table in any_stack.tables.items()}
    assert settings.tables.keys() & examples == of_examples


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_is_python_3_13_on_the_chosen_processor_with_both_layers(any_stack: Stack, function: str) -> None:
    properties = any_stack.properties(function)
    layers = [re.sub("[0-9a-f]{10}$", "", layer["Ref"]) for layer in properties["Layers"]]

    assert (properties["Runtime"], properties["Handler"]) == ("python3.13", "app.handler")
    assert properties["Architectures"] == [{"Ref": "Architecture"}]
    assert layers == ["RingfenceLayer", "DependenciesLayer"]
    assert properties["TracingConfig"] == {"Mode": "Active"}


def test_a_deployed_function_calls_aws(stack: Stack) -> None:
    for function in FUNCTIONS:
        assert "AWS_ENDPOINT_URL" not in stack.properties(function)["Environment"]["Variables"]


def test_arm64_is_the_default_processor(stack: Stack) -> None:
    assert stack.parameters["Architecture"] == "arm64"


def test_the_dependencies_are_built_for_the_processor_that_the_functions_run_on() -> None:
    # In the source, since `sam build` reads the metadata there and the translation drops it.
    layers = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))["Resources"]
    dependencies, library = layers["DependenciesLayer"], layers["RingfenceLayer"]

    assert dependencies["Metadata"] == {"BuildMethod": "python3.13", "BuildArchitecture": {"Ref": "Architecture"}}
    assert dependencies["Properties"]["CompatibleArchitectures"] == [{"Ref": "Architecture"}]
    assert "Metadata" not in library
    assert library["Properties"]["CompatibleArchitectures"] == ["arm64", "x86_64"]


def test_every_function_and_layer_has_its_code(stack: Stack) -> None:
    folders = {name: f"{path.parent.name}/{path.name}" for name, path in stack.template.code.items()}

    functions = ["functions/gateway", "functions/relay", "functions/timers", "functions/worker"]
    assert sorted(folders.values()) == [*functions, "layers/dependencies", "layers/ringfence"]


def test_every_parameter_and_output_says_what_it_is(stack: Stack) -> None:
    told = {**stack.template.declared, **stack.template.outputs}

    assert {name for name, declared in told.items() if len(declared.get("Description", "")) < 20} == set()
    assert set(stack.template.outputs) == {
        "ApiUrl", "StreamName", "LastResortQueueUrl", "LedgerTableName", "BucketName",
        "GatewayFunctionName", "RelayFunctionName", "WorkerFunctionName", "TimersFunctionName", "WorkerPolicies",
    }  # fmt: skip


def test_the_combinations_that_are_tried_hold_every_value_and_every_three_that_meet() -> None:
    tried = [dict(parameters) for parameters in combinations()]

    assert len(tried) == 8
    for name, options in {**DECIDING, **ALONGSIDE}.items():
        assert {parameters[name] for parameters in tried} == set(options)
    for three in itertools.combinations(DECIDING, 3):
        assert len({tuple(parameters[name] for name in three) for parameters in tried}) == 2**3
