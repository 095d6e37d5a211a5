"""The pytest plugin: found where Ringfence is installed, silent until its fixtures are used, at home among many processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

PLUGIN = ["-p", "ringfence", "-p", "no:cacheprovider"]
"""By the name of its entry point."""

CONFTEST = """
import sys

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        loaded = [name for name in sys.modules if name.partition(".")[0] in ("ringfence", "boto3", "msgspec")]
        (config.rootpath / "loaded").write_text(" ".join(sorted(loaded)))
"""

SHOP = """
from ringfence import App

from shop import payments

app = App()

@app.job("pay")
def pay(ctx, cents: int) -> None:
    payments.charge(cents=cents)
"""

SHOP_FIXTURE = """
import pytest

@pytest.fixture
def ringfence_app():
    from shop.jobs import app
    return app

"""

COUNTS = """
from ringfence import App
from ringfence.testing import Receiver

mailer = Receiver("mailer")
app = App()

@app.job("mail")
def mail(ctx) -> None:
    mailer()

def test_a_mail(ringfence_faults):
    ringfence_faults("mail", receivers=[mailer])
"""


@pytest.fixture(autouse=True)
def no_other_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of those that are installed here take seconds to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def printed(kind: str) -> list[str]:
    return re.findall(rf"```{kind} testing\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_what_the_readme_prints_is_what_happens_also_in_other_processes(tmp_path: Path) -> None:
    charge, pay = printed("python")
    (report,) = printed("text")
    (tmp_path / "shop").mkdir()
    for name, text in {
        "conftest.py": CONFTEST,
        "test_charge.py": charge,
        "test_pay.py": SHOP_FIXTURE + pay,
        "shop/__init__.py": "",
        "shop/jobs.py": SHOP,
        "shop/payments.py": "charge = None\n",
    }.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "xdist", *PLUGIN]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "functions/worker"), str(tmp_path)]),
        "COLUMNS": "200",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False)
    told = done.stdout
    assert "1 failed, 2 passed" in told, told + done.stderr
    unprefixed = re.sub(r"(?m)^E? +", "", told)
    for line in report.splitlines():
        assert line.strip() in unprefixed
    summary = told[told.index(" effects under faults ") :]
    assert re.search(r"\ncharge: \d+ lives \(crash \d+, .*\); its effect landed once in each\n", summary)
    assert (tmp_path / "loaded").read_text() == "ringfence ringfence.testing ringfence.testing.plugin"


def test_one_life_of_a_report_can_be_lived_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_APP", "test_one_life:app")
    pytester.syspathinsert()
    pytester.makepyfile(test_one_life=COUNTS)
    alone = pytester.runpytest_inprocess("--ringfence-life", "crash-2", *PLUGIN)
    alone.assert_outcomes(passed=1)
    alone.stdout.fnmatch_lines(["mail: 1 life (crash 1); its effect landed once in each"])


def test_who_names_no_app_is_told_how(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGFENCE_APP", raising=False)
    pytester.makepyfile(test_no_app="def test_it(ringfence_system): pass")
    run = pytester.runpytest_inprocess(*PLUGIN)
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines(["*define a fixture ringfence_app that returns your App, or set RINGFENCE_APP=module:attribute*"])
