"""Finding the user's app: what is wrong with it is said with its place, once, at the start."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.app_import import load_app
from ringfence.settings import Misconfigured

PACKAGE = "jobs_of_a_test"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of jobs with an app and one module, ``mine.py``, that it imports."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from ringfence import App\napp, other = App(), 7\nimport {PACKAGE}.mine\n")
    (folder / "mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def refusal(where: str | None) -> str:
    with pytest.raises(Misconfigured) as refused:
        load_app(where)
    return str(refused.value)


def test_it_is_found_by_module_and_attribute(package: Path) -> None:
    assert load_app(f"{PACKAGE}:app").jobs == {}


@pytest.mark.parametrize(
    ("source", "line", "error"),
    [
        ("x = 1\nimport no_such_module_anywhere\n", 2, "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("\n\nundefined_name\n", 3, "NameError: name 'undefined_name' is not defined"),
        ("def f(:\n", 1, "SyntaxError: "),
        ("from ringfence import App\n\nApp().job('no/name')\n", 3, "ValueError: a job's name has"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_by_file_and_line(package: Path, source: str, line: int, error: str) -> None:
    (package / "mine.py").write_text(source)
    told = refusal(f"{PACKAGE}:app")
    assert told.startswith(f"RINGFENCE_APP={PACKAGE}:app cannot be imported: {package / 'mine.py'}:{line}: {error}")


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (None, "not module:attribute: None"),
        ("jobs", "not module:attribute: 'jobs'"),
        (":app", "not module:attribute"),
        (f"{PACKAGE}:nothing", r"__init__\.py has no nothing"),
        (f"{PACKAGE}:other", "is a int, not an App"),
        ("no_such_package_anywhere:app", "cannot be imported: ModuleNotFoundError"),
        ("no_such_package.app:app", f"from {re.escape(os.getcwd())}: start in the folder that holds no_such_package$"),
    ],
)
def test_what_is_not_an_app_is_refused(package: Path, where: str | None, told: str) -> None:
    assert re.search(told, refusal(where))
