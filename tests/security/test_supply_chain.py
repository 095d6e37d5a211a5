"""What is run is what was locked, and what was written has none of the faults that bandit knows.

Vulnerabilities that became known since are asked for by ``make audit``: that needs pypi.org, and changes from day to day.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("layers", "functions")

PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( ; .+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def requirement_files() -> list[Path]:
    """Every file that pip could be told to install, by what is in it; but for what a broken `make audit` has left."""
    texts = [*ROOT.glob("[!.]*.txt"), *(path for folder in (*CODE, "tests") for path in ROOT.joinpath(folder).rglob("*.txt"))]
    return [path for path in texts if re.search(r"^[A-Za-z0-9._-]+(==|>=|~=)", path.read_text(encoding="utf-8"), re.MULTILINE)]


def requirements_in(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The pin of each requirement, and its options."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.strip().startswith("#")]
    for requirement in "\n".join(lines).replace("\\\n", " ").splitlines():
        if requirement.strip():
            pin, *options = re.split(r"\s+(?=--)", requirement.strip())
            yield pin, options


def test_the_files_are_found() -> None:
    assert {path.name for path in requirement_files()} == {"requirements.txt", "ministack.lock.txt"}


@pytest.mark.parametrize("path", requirement_files(), ids=lambda path: path.name)
def test_every_requirement_has_one_version_and_the_hashes_of_its_files(path: Path) -> None:
    found = list(requirements_in(path))
    assert found
    for pin, options in found:
        assert PIN.fullmatch(pin), pin
        assert options, f"{pin} has no hash"
        assert all(HASH.fullmatch(option) for option in options), options


def test_everything_locked_comes_from_one_registry_with_its_hash() -> None:
    packages: list[Mapping[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    ours, *others = sorted(packages, key=lambda package: package["source"] != {"editable": "."})
    assert ours["name"] == "ringfence"
    for package in others:
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        assert files, package["name"]
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", file["hash"]) for file in files)
        assert all(file["url"].startswith("https://files.pythonhosted.org/") for file in files)


# --- bandit ------------------------------------------------------------------------------------------------------------


CONFIGURED = ("-c", str(ROOT / "pyproject.toml"))


def bandit(*arguments: str) -> list[Mapping[str, Any]]:
    command = [sys.executable, "-m", "bandit", "-q", "-r", "-n", "0", "-f", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["errors"] == []
    found: list[Mapping[str, Any]] = report["results"]
    return found


def test_bandit_finds_nothing_but_what_is_excused_and_every_excuse_is_needed() -> None:
    """It is asked without the settings, which are applied here: one that nothing needs any more would hide what comes later."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["bandit"]
    assert settings.keys() == {"skips", "assert_used"}
    excuses = {(test, "*") for test in settings["skips"]} | {("B101", path) for path in settings["assert_used"]["skips"]}
    found = bandit(*(str(ROOT / code) for code in CODE))
    excused = {
        place: {excuse for excuse in excuses if each["test_id"] == excuse[0] and fnmatch(each["filename"], excuse[1])}
        for each in found
        if (place := f"{each['filename']}:{each['line_number']} {each['test_id']} {each['issue_text']}")
    }
    assert [place for place, by in excused.items() if not by] == []
    assert excuses - set().union(*excused.values()) == set()
    assert [
        path for code in CODE for path in ROOT.joinpath(code).rglob("*.py") if "# nosec" in path.read_text(encoding="utf-8")
    ] == []


FAULTS = {
    "B101": "assert input()",
    "B301": "import pickle\npickle.loads(input().encode())",
    "B307": "eval(input())",
    "B102": "exec(input())",
    "B324": "import hashlib\nhashlib.md5(b'')",
    "B501": "import requests\nrequests.get('https://example.org', verify=False, timeout=1)",
    "B506": "import yaml\nyaml.load(input())",
    "B602": "import subprocess\nsubprocess.run(input(), shell=True)",
    "B605": "import os\nos.system(input())",
    "B608": "query = 'SELECT * FROM jobs WHERE id = %s' % input()",
}


def test_bandit_would_have_found_something(tmp_path: Path) -> None:
    for name, fault in FAULTS.items():
        (tmp_path / f"{name}.py").write_text(fault + "\n", encoding="utf-8")
    found = {(Path(each["filename"]).stem, each["test_id"]) for each in bandit(*CONFIGURED, str(tmp_path))}
    assert {(name, name) for name in FAULTS} - found == set()
