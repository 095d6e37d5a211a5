"""CloudFormation's intrinsic functions, as far as properties of functions and event sources use them.

In two steps. `Deciding` needs only the parameters: it settles conditions, so that what is left is what would be deployed.
`Filling` needs the created stack: it puts in physical ids and attributes, which the emulator itself has told.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.errors import RingfenceError

Reference = tuple[str, str | None]
"""A resource's logical id, and the attribute of it; None is its physical id (``Ref``)."""

_PLACEHOLDER = re.compile(r"\$\{([^!][^}]*)\}")
_LITERAL = re.compile(r"\$\{!([^}]*)\}")

_NO_VALUE = "AWS::NoValue"
_LEFT_OUT = object()


class Unresolvable(RingfenceError):
    """The template uses an intrinsic function in a way that `ringfence dev` cannot resolve."""


def intrinsic(value: Any) -> tuple[str, Any] | None:
    """The function's name and its argument, if ``value`` is a call of one."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, argument),) = value.items()
        if isinstance(name, str) and (name in ("Ref", "Condition") or name.startswith("Fn::")):
            return name, argument
    return None


def references(value: Any) -> Iterator[Reference]:
    """Every resource, parameter or pseudo parameter that ``value`` names, in a decided template."""
    match intrinsic(value):
        case ("Ref", str(name)):
            yield name, None
        case ("Fn::GetAtt", argument):
            yield _attribute(argument)
        case ("Fn::Sub", argument):
            text, local = _sub(argument)
            yield from (_split(name) for name in _PLACEHOLDER.findall(text) if name not in local)
            yield from references(list(local.values()))
        case _:
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            for part in parts:
                yield from references(part)


def substituted(value: Any, values: Mapping[Reference, str]) -> Any:
    """``value`` with those of its references that ``values`` has put in, and all others as they were."""
    match intrinsic(value):
        case ("Ref", str(name)) if (name, None) in values:
            return values[name, None]
        case ("Fn::GetAtt", argument) if _attribute(argument) in values:
            return values[_attribute(argument)]
        case ("Fn::Sub", argument):
            text, local = _sub(argument)
            known = {found: values[_split(found)] for found in _PLACEHOLDER.findall(text) if _split(found) in values}
            text = _PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]) if found[1] not in local else found[0], text)
            return {"Fn::Sub": [text, substituted(local, values)] if local else text}
    if isinstance(value, Mapping):
        return {key: substituted(part, values) for key, part in value.items()}
    if isinstance(value, list):
        return [substituted(part, values) for part in value]
    return value


@dataclass(slots=True)
class Deciding:
    """Settles ``Fn::If``, ``Fn::FindInMap`` and ``AWS::NoValue`` with the parameters' values."""

    parameters: Mapping[str, Any]
    conditions: Mapping[str, Any]
    mappings: Mapping[str, Any]
    _decided: dict[str, bool] = field(default_factory=dict)

    def holds(self, condition: str) -> bool:
        """Whether the named condition is true."""
        if condition not in self._decided:
            if condition not in self.conditions:
                raise Unresolvable(f"the template has no condition {condition!r}")
            self._decided[condition] = self.is_true(self.conditions[condition])
        return self._decided[condition]

    def decide(self, value: Any) -> Any:
        """``value`` without conditions; what a condition leaves out is gone, everything else as it was."""
        match intrinsic(value):
            case ("Ref", name) if name == _NO_VALUE:
                return _LEFT_OUT
            case ("Fn::If", [str(condition), then, otherwise]):
                return self.decide(then if self.holds(condition) else otherwise)
            case ("Fn::FindInMap", [name, first, second]):
                return self._in_map(*(str(self._scalar(part)) for part in (name, first, second)))
            case ("Fn::If" | "Fn::FindInMap" | "Fn::Transform" | "Fn::ImportValue" as name, argument):
                raise Unresolvable(f"{name} of {argument!r}")
        if isinstance(value, dict):
            decided = {key: self.decide(part) for key, part in value.items()}
            return {key: part for key, part in decided.items() if part is not _LEFT_OUT}
        if isinstance(value, list):
            return [part for part in map(self.decide, value) if part is not _LEFT_OUT]
        return value

    def is_true(self, value: Any) -> bool:
        """What a condition, or the assertion of a rule, comes to."""
        match intrinsic(value):
            case ("Condition", str(name)):
                return self.holds(name)
            case ("Fn::Equals", [one, other]):
                return str(self._scalar(one)) == str(self._scalar(other))
            case ("Fn::Not", [one]):
                return not self.is_true(one)
            case ("Fn::And", [*parts]):
                return all(map(self.is_true, parts))
            case ("Fn::Or", [*parts]):
                return any(map(self.is_true, parts))
        raise Unresolvable(f"not a condition: {value!r}")

    def _scalar(self, value: Any) -> Any:
        decided = self.decide(value)
        match intrinsic(decided):
            case None:
                return decided
            case ("Ref", str(name)) if name in self.parameters:
                return self.parameters[name]
        raise Unresolvable(f"a condition can only rest on parameters, not on {value!r}")

    def _in_map(self, name: str, first: str, second: str) -> Any:
        try:
            rows = {str(key): row for key, row in self.mappings[name].items()}
            return rows[first][second]
        except KeyError as missing:
            raise Unresolvable(f"Fn::FindInMap [{name}, {first}, {second}]: no {missing}") from None


@dataclass(frozen=True, slots=True)
class Filling:
    """Puts in what the references of a decided template stand for."""

    values: Mapping[Reference, Any]
    """Physical ids, attributes, parameters and pseudo parameters."""

    def fill(self, value: Any) -> Any:
        match intrinsic(value):
            case ("Ref", str(name)):
                return self._value((name, None))
            case ("Fn::GetAtt", argument):
                return self._value(_attribute(argument))
            case ("Fn::Sub", argument):
                return self._substitute(argument)
            case ("Fn::Join", [str(between), parts]):
                return between.join(_text(part) for part in self.fill(parts))
            case ("Fn::Select", [index, parts]):
                return self.fill(parts)[int(self.fill(index))]
            case ("Fn::Split", [str(between), text]):
                return _text(self.fill(text)).split(between)
            case ("Fn::ToJsonString" | "Fn::Base64" | "Fn::Cidr" | "Fn::GetAZs" | "Fn::Length" as name, argument):
                raise Unresolvable(f"{name} of {argument!r}")
        if isinstance(value, dict):
            return {key: self.fill(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.fill(part) for part in value]
        return value

    def _value(self, reference: Reference) -> Any:
        try:
            return self.values[reference]
        except KeyError:
            name, attribute = reference
            raise Unresolvable(f"nothing is known of {name}{f'.{attribute}' if attribute else ''}") from None

    def _substitute(self, argument: Any) -> str:
        text, local = _sub(argument)
        given = {name: _text(self.fill(part)) for name, part in local.items()}
        filled = _PLACEHOLDER.sub(
            lambda found: given[found[1]] if found[1] in given else _text(self._value(_split(found[1]))), text
        )
        return _LITERAL.sub(r"${\1}", filled)


def _attribute(argument: Any) -> Reference:
    if isinstance(argument, str):
        return _split(argument)
    return str(argument[0]), ".".join(map(str, argument[1:]))


def _split(dotted: str) -> Reference:
    name, _, attribute = dotted.strip().partition(".")
    return name, attribute or None


def _sub(argument: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(argument, str):
        return argument, {}
    text, local = argument
    return text, local


def _text(value: Any) -> str:
    """A scalar as CloudFormation writes it into a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
