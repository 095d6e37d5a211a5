"""The layer of dependencies holds what was locked, all of it, for both processors, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

IN_LAMBDAS_RUNTIME = {"boto3"}
"""https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html"""

ONLY_FOR_THE_CLI = {"click", "rich"}


def pinned() -> dict[str, tuple[str, set[str]]]:
    """Name → the exact version, and the hashes of its files."""
    text = (ROOT / "layers/dependencies/requirements.txt").read_text(encoding="utf-8")
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    pins = {}
    for pin in lines.replace("\\\n", " ").splitlines():
        package, *hashes = pin.split()
        name, version = package.split("==")
        pins[name] = version, {each.removeprefix("--hash=") for each in hashes}
    return pins


def requirements() -> dict[str, str]:
    """Name → the exact version."""
    return {name: version for name, (version, _) in pinned().items()}


@cache
def locked() -> dict[str, Mapping[str, Any]]:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return {package["name"]: package for package in packages}


def needed_on_lambda() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["redis"]]
    declared = {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in wanted}
    assert declared > IN_LAMBDAS_RUNTIME | ONLY_FOR_THE_CLI
    return declared - IN_LAMBDAS_RUNTIME - ONLY_FOR_THE_CLI


def with_their_dependencies(names: set[str]) -> set[str]:
    packages, found, open_ones = locked(), set[str](), list(names)
    while open_ones:
        name = open_ones.pop()
        if name not in found:
            found.add(name)
            open_ones += [each["name"] for each in packages[name].get("dependencies", ()) if "marker" not in each]
    return found


def test_the_layer_holds_what_the_functions_need_and_nothing_else() -> None:
    assert set(requirements()) == with_their_dependencies(needed_on_lambda())


def test_every_version_is_the_locked_one() -> None:
    packages = locked()

    assert requirements() == {name: packages[name]["version"] for name in requirements()}


@pytest.mark.parametrize("name", sorted(requirements()))
def test_every_file_that_fits_is_pinned_by_its_locked_hash_and_no_other_is(name: str) -> None:
    """Of every machine's wheels, not only Lambda's: `sam build` first downloads those of the machine that it runs on."""
    package = locked()[name]
    fits = re.compile(r"-(py3|py2\.py3|cp313)-(none|cp313|abi3)-[^/]*\.whl$")

    assert pinned()[name][1] == {
        package["sdist"]["hash"],
        *(wheel["hash"] for wheel in package["wheels"] if fits.search(wheel["url"])),
    }


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_every_package_has_a_wheel_for_lambdas_python_on_each_processor(machine: str) -> None:
    fits = re.compile(rf"-(py3|py2\.py3|cp313)-(none|cp313|abi3)-(any|manylinux[^/]*_{machine})\.whl$")
    for name in requirements():
        wheels = [wheel["url"] for wheel in locked()[name]["wheels"]]
        assert any(map(fits.search, wheels)), f"{name} would have to be compiled"
