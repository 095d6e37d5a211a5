"""A SAM template, translated to CloudFormation and decided: the one truth about functions, resources and event sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ringfence.errors import RingfenceError
from ringfence.local.endpoint import deaf_session
from ringfence.local.intrinsics import Deciding, intrinsic

_CODE_BUCKET = "ringfence-dev"
"""The translator wants the code in S3. It runs from its folder; the keys are the logical ids of the SAM resources."""

_EVENT_TYPES = frozenset({"HttpApi", "Kinesis", "SQS", "Schedule", "ScheduleV2"})
_CODE_PROPERTIES = {"AWS::Serverless::Function": "CodeUri", "AWS::Serverless::LayerVersion": "ContentUri"}


class BadTemplate(RingfenceError):
    """The template cannot be used by `ringfence dev`."""


@dataclass(frozen=True, slots=True)
class Template:
    """What would be deployed: conditions decided, Serverless resources translated."""

    resources: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Mapping[str, Any]]
    parameters: Mapping[str, str]
    """The value of every parameter."""
    declared: Mapping[str, Mapping[str, Any]]
    """The template's own ``Parameters`` section."""
    mappings: Mapping[str, Any]
    code: Mapping[str, Path]
    """Logical id of each function and layer, as the translated template has it → its folder on this machine."""
    function_ids: tuple[str, ...] = field(default=())

    def of_type(self, *types: str) -> dict[str, Mapping[str, Any]]:
        """Logical id → resource, of the given types."""
        return {name: resource for name, resource in self.resources.items() if resource["Type"] in types}


def read_template(path: Path, parameters: Mapping[str, str], region: str) -> Template:
    """Read, check, translate and decide the template at ``path``. Raises `BadTemplate` or `Unresolvable`."""
    source = _load(path)
    values = _parameter_values(source.get("Parameters") or {}, parameters)
    _refuse_unknown_events(source)
    folders = _point_code_at_bucket(source, path.parent)
    translated = _translate(source, values, region)
    deciding = Deciding(values, translated.get("Conditions") or {}, translated.get("Mappings") or {})
    _refuse_broken_rules(translated.get("Rules") or {}, deciding)
    resources = _present(translated["Resources"], deciding)
    code = {name: folders[key] for name, resource in resources.items() if (key := _code_key(resource)) in folders}
    return Template(
        resources=resources,
        outputs=_present(translated.get("Outputs") or {}, deciding),
        parameters=values,
        declared=translated.get("Parameters") or {},
        mappings=translated.get("Mappings") or {},
        code=code,
        function_ids=tuple(name for name, resource in resources.items() if resource["Type"] == "AWS::Lambda::Function"),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise BadTemplate(f"cannot read the template: {fault}") from None
    except UnicodeDecodeError as fault:
        raise BadTemplate(f"{path} is not UTF-8: {fault.reason} at byte {fault.start}") from None
    try:
        source = _loader()(text).get_single_data()
    except yaml.YAMLError as fault:
        raise BadTemplate(f"{path} is not YAML: {fault}") from None
    if not isinstance(source, dict) or not isinstance(source.get("Resources"), dict):
        raise BadTemplate(f"{path} is not a template: it has no Resources")
    _refuse_malformed(path, source)
    # An alias is the same object twice; the translator writes into what it is given.
    return {key: _unshared(value) for key, value in source.items()}


def _refuse_malformed(path: Path, source: Mapping[str, Any]) -> None:
    """What CloudFormation itself takes for granted, so that nobody stumbles over it later."""
    for section in ("Parameters", "Conditions", "Mappings", "Rules", "Outputs", "Globals"):
        if not isinstance(source.get(section) or {}, dict):
            raise BadTemplate(f"{path}: {section} is not a mapping")
    for name, resource in source["Resources"].items():
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str):
            raise BadTemplate(f"{path}: the resource {name} has no Type")
        if not isinstance(resource.get("Properties") or {}, dict):
            raise BadTemplate(f"{path}: the Properties of {name} are not a mapping")
    for section in ("Parameters", "Outputs"):
        for name, entry in (source.get(section) or {}).items():
            if not isinstance(entry, dict):
                raise BadTemplate(f"{path}: {name} of {section} is not a mapping")


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Reads CloudFormation's short forms (``!Ref``) too. libyaml, where PyYAML comes with it, takes a tenth of the time."""
    from samtranslator.yaml_helper import intrinsics_multi_constructor  # slow to import, and only `ringfence dev` needs it

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    Loader.add_multi_constructor("!", intrinsics_multi_constructor)
    return Loader


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unshared(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_unshared(part) for part in value]
    return value


def _parameter_values(declared: Mapping[str, Mapping[str, Any]], given: Mapping[str, str]) -> dict[str, str]:
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise BadTemplate(f"the template has no parameter {', '.join(unknown)}; it has {', '.join(sorted(declared)) or 'none'}")
    values = {}
    for name, declaration in declared.items():
        value = given.get(name, declaration.get("Default"))
        if value is None:
            raise BadTemplate(f"the parameter {name} has no default: give it a value")
        allowed = [str(each) for each in declaration.get("AllowedValues") or ()]
        if allowed and str(value) not in allowed:
            raise BadTemplate(f"{name}={value} is none of {', '.join(allowed)}")
        pattern = declaration.get("AllowedPattern")
        if pattern is not None and not re.fullmatch(pattern, str(value)):
            # Not the value, which may be a secret.
            raise BadTemplate(f"the value of {name} does not match {pattern}")
        values[name] = str(value)
    return values


def _refuse_broken_rules(rules: Mapping[str, Any], deciding: Deciding) -> None:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html"""
    for name, rule in rules.items():
        if "RuleCondition" in rule and not deciding.is_true(rule["RuleCondition"]):
            continue
        for assertion in rule["Assertions"]:
            if not deciding.is_true(assertion["Assert"]):
                raise BadTemplate(assertion.get("AssertDescription") or f"the rule {name} of the template is broken")


def _refuse_unknown_events(source: Mapping[str, Any]) -> None:
    for name, resource in source["Resources"].items():
        if resource.get("Type") != "AWS::Serverless::Function":
            continue
        for event, body in (resource.get("Properties", {}).get("Events") or {}).items():
            if body.get("Type") not in _EVENT_TYPES:
                raise BadTemplate(
                    f"{name} has an event source {event} of type {body.get('Type')}, which ringfence dev cannot imitate; "
                    f"it knows {', '.join(sorted(_EVENT_TYPES))}"
                )


def _point_code_at_bucket(source: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Give every function and layer a code location that the translator takes. Returns logical id → its real folder."""
    folders = {}
    default = ((source.get("Globals") or {}).get("Function") or {}).get("CodeUri")
    for name, resource in source["Resources"].items():
        kind = resource.get("Type")
        if kind not in _CODE_PROPERTIES:
            continue
        properties = resource.setdefault("Properties", {})
        where = properties.get(_CODE_PROPERTIES[kind], default if kind.endswith("Function") else None)
        if not isinstance(where, str) or not (folder / where).is_dir():
            raise BadTemplate(f"{_CODE_PROPERTIES[kind]} of {name} is not a folder beside the template: {where!r}")
        folders[name] = (folder / where).resolve()
        properties[_CODE_PROPERTIES[kind]] = f"s3://{_CODE_BUCKET}/{name}"
    return folders


def _code_key(resource: Mapping[str, Any]) -> str | None:
    properties = resource.get("Properties") or {}
    match resource["Type"]:
        case "AWS::Lambda::Function":
            key = properties.get("Code", {}).get("S3Key")
        case "AWS::Lambda::LayerVersion":
            key = properties.get("Content", {}).get("S3Key")
        case _:
            return None
    return str(key)


def _translate(source: dict[str, Any], values: Mapping[str, str], region: str) -> dict[str, Any]:
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    # Names of managed policies stay as they are: the real list would have to be fetched from AWS.
    translator = Translator({}, Parser(), boto_session=deaf_session(region))
    try:
        translated: dict[str, Any] = translator.translate(source, dict(values))
    except InvalidDocumentException as fault:
        raise BadTemplate("; ".join(str(cause.message) for cause in fault.causes)) from None
    return translated


def _present(section: Mapping[str, Any], deciding: Deciding) -> dict[str, Any]:
    """The entries whose condition holds, decided, their ``Condition`` dropped, and no ``DependsOn`` on an absent one."""
    present = {name: entry for name, entry in section.items() if "Condition" not in entry or deciding.holds(entry["Condition"])}
    decided = {}
    for name, entry in present.items():
        kept = {key: deciding.decide(part) for key, part in entry.items() if key not in ("Condition", "DependsOn")}
        depends = [entry["DependsOn"]] if isinstance(entry.get("DependsOn"), str) else entry.get("DependsOn") or []
        if remaining := [each for each in depends if each in present]:
            kept["DependsOn"] = remaining
        decided[name] = kept
    return decided


def logical_id(value: Any) -> str | None:
    """The resource that a plain ``Ref`` or ``Fn::GetAtt`` names, if ``value`` is one."""
    match intrinsic(value):
        case ("Ref", str(name)):
            return name
        case ("Fn::GetAtt", [str(name), *_]):
            return name
        case ("Fn::GetAtt", str(dotted)):
            return dotted.partition(".")[0]
    return None
