"""The plain loop, and the broken files that it must call broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.module_counts import MAX_SOURCE_BYTES
from ringfence.local.demo import broken
from ringfence.local.demo.plain import NoExampleJobs, expected_of
from ringfence.local.demo.sources import Source

WORKER = Path(__file__).parents[2] / "functions" / "worker"


def test_a_package_is_the_sum_of_its_modules() -> None:
    sources = [
        Source("modules/p/a.py", b"import os\n"),
        Source("modules/p/b.py", b"def f(): ...\n\n"),
        Source("modules/q/c.py", b""),
        Source("modules/q/d.py", b"def"),
    ]
    expected = expected_of(sources, WORKER)
    assert expected.modules == {
        "modules/p/a.py": {"lines": 1, "classes": 0, "functions": 0, "imports": 1},
        "modules/p/b.py": {"lines": 2, "classes": 0, "functions": 1, "imports": 0},
        "modules/q/c.py": {"lines": 0, "classes": 0, "functions": 0, "imports": 0},
    }
    assert expected.totals == {
        "modules/p": {"modules": 2, "lines": 3, "classes": 0, "functions": 1, "imports": 1},
        "modules/q": {"modules": 1, "lines": 0, "classes": 0, "functions": 0, "imports": 0},
    }
    assert expected.unparseable == {"modules/q/d.py": "SyntaxError: invalid syntax (d.py, line 1)"}


def test_an_invalid_escape_in_a_file_is_no_warning_of_ours() -> None:
    assert expected_of([Source("modules/a.py", rb"x = '\d'")], WORKER).modules  # pytest turns a warning into an error


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> tuple[Source, ...]:
    """The broken files with fewer lines, which parse as fast as others."""
    monkeypatch.setattr(broken, "_LINES", 50)
    return broken.broken_files()


def test_each_of_the_three_broken_files_is_wrong_in_another_way(short: tuple[Source, ...]) -> None:
    unparseable = expected_of(short, WORKER).unparseable

    assert unparseable.keys() == {source.key for source in short}
    assert len({message.partition("(")[0] for message in unparseable.values()}) == 3


def test_two_of_them_are_right_up_to_their_last_line(short: tuple[Source, ...]) -> None:
    long = [source for source in short if b"row" in source.data]

    assert len(long) == 2
    for source in long:
        body, _, last = source.data.rstrip().rpartition(b"\n")
        assert len(last) < 20
        assert not expected_of([Source(source.key, body)], WORKER).unparseable


def test_those_two_are_long_and_none_is_refused_for_its_size() -> None:
    sizes = sorted(len(source.data) for source in broken.broken_files())

    assert sizes[0] < 100
    assert sizes[1] > 400_000
    assert sizes[2] <= MAX_SOURCE_BYTES


def test_a_folder_without_the_example_jobs_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoExampleJobs):
        expected_of([], tmp_path)
