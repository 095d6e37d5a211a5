"""The README's "In your own repository", done as it is printed, upgrade included; but for pip, which asks a registry."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.local.template import read_template

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")

TESTS = """
import pytest
from jobs import app

@pytest.fixture
def ringfence_app():
    return app

def test_a_greeting(ringfence_system):
    job = ringfence_system.run_job("greet", {"name": "Ada"})
    assert (job.state, job.result) == ("succeeded", '"Hello, Ada!"')
"""


def printed(kind: str) -> str:
    """The lines of this block, but for those that make an environment."""
    (block,) = re.findall(rf"```sh {kind}\n(.*?)```", README, re.DOTALL)
    without = re.sub(r"^python3 -m venv .*\n| && \.venv/bin/pip install \S+", "", block, flags=re.MULTILINE)
    assert "pip" in block
    assert "pip" not in without
    return without


def run(lines: str, folder: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    person = {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    # A submodule may be fetched from a path only where that is allowed.
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "file"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input=lines,
        cwd=folder,
        env={**environment, **person, **alone, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with what is deployed of this one."""
    there = tmp_path / "origin"
    for folder in ("functions", "layers"):
        shutil.copytree(ROOT / folder, there / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("template.yaml", "samconfig.toml"):
        shutil.copy(ROOT / file, there)
    (there / "tests").mkdir()
    (there / "tests" / "test_ours.py").write_text("raise AssertionError('nobody else is to run our tests')", encoding="utf-8")
    run("git init -q && git add . && git commit -qm first && git tag v1", there)
    return there


def released(origin: Path, version: str) -> None:
    """With something new in the template and in the worker."""
    for name in ("template.yaml", "functions/worker/app.py"):
        with (origin / name).open("a", encoding="utf-8") as file:
            file.write("# newer\n")
    run(f"git commit -qam next && git tag {version}", origin)


def test_a_repository_of_ones_own_has_all_that_is_deployed_and_takes_over_what_is_new(origin: Path, tmp_path: Path) -> None:
    run(printed("own"), tmp_path, RINGFENCE=str(origin))
    shop = tmp_path / "shop"
    template = read_template(shop / "template.yaml", {}, "us-east-1")
    folders = {name: template.code[name].resolve().relative_to(shop) for name in template.function_ids}
    assert folders.pop("WorkerFunction") == Path("worker")
    assert all((shop / folder / "app.py").is_file() for folder in (*folders.values(), "worker"))
    assert {folder.parts[:3] for folder in folders.values()} == {("vendor", "ringfence", "functions")}
    layers = [folder.resolve() for name, folder in template.code.items() if name not in template.function_ids]
    assert {folder.relative_to(shop / "vendor/ringfence/layers").name for folder in layers} == {"ringfence", "dependencies"}
    (shop / "tests" / "test_jobs.py").write_text(TESTS, encoding="utf-8")
    plugin = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "ringfence.testing.plugin", "PYTEST_ADDOPTS": ""}
    assert "1 passed" in run(f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider", shop, **plugin)

    own = shop / "template.yaml"
    own.write_text(own.read_text(encoding="utf-8").replace("RINGFENCE_APP: jobs:app\n", "RINGFENCE_APP: jobs:mine\n"))
    released(origin, "v2")
    run(printed("upgrade"), shop, VERSION="v2")
    upgraded = own.read_text(encoding="utf-8")
    assert upgraded.endswith("# newer\n")
    assert "RINGFENCE_APP: jobs:mine\n" in upgraded
    assert "CodeUri: worker\n" in upgraded
    assert (shop / "worker" / "app.py").read_text(encoding="utf-8").endswith("# newer\n")
