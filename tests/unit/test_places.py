"""What is told of an exception without its message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.places import MAX_FRAMES, kind_and_place, users_frames, users_place

SECRET = "hunter2-hunter2"
HERE = Path(__file__).name


def raised_by(code: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as info:
        code()
    return info.value


def ends_in_a_library() -> object:
    return json.loads(f"[{SECRET}")


def test_frames_of_the_users_code_are_told_and_where_a_library_raised() -> None:
    told = users_frames(raised_by(ends_in_a_library)).split("; ")
    assert [frame.rpartition(" in ")[2] for frame in told] == ["raised_by", "ends_in_a_library", "raw_decode"]
    assert told[1].startswith(f"{HERE}:")
    assert told[2].startswith("decoder.py:")


def test_no_more_than_the_innermost_frames_are_told() -> None:
    def deeper(levels: int) -> None:
        if not levels:
            raise ValueError(SECRET)
        deeper(levels - 1)

    told = users_frames(raised_by(lambda: deeper(50)))
    assert [frame.rpartition(" in ")[2] for frame in told.split("; ")] == ["deeper"] * MAX_FRAMES
    assert SECRET not in told


def test_c42_neither_kind_nor_place_quotes_the_message() -> None:
    raised = raised_by(ends_in_a_library)
    assert SECRET not in kind_and_place(raised)
    assert kind_and_place(raised).startswith("JSONDecodeError at decoder.py:")


def test_the_users_own_line_is_the_place_though_a_library_raised() -> None:
    line = ends_in_a_library.__code__.co_firstlineno + 1
    assert users_place(raised_by(ends_in_a_library)) == f"{__file__}:{line}"


def test_text_that_is_not_python_is_its_own_place() -> None:
    assert users_place(raised_by(lambda: compile("def f(:\n", "/jobs/mine.py", "exec"))) == "/jobs/mine.py:1"


def test_what_was_never_raised_has_no_place() -> None:
    assert (kind_and_place(ValueError()), users_frames(ValueError()), users_place(ValueError())) == ("ValueError", "", "")
