"""Which files the demo indexes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ringfence.local.demo.sources import NoSources, Source, files_in, standard_library


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


def test_the_standard_library_is_there_without_its_tests_and_without_what_pip_installed() -> None:
    keys = {source.key for source in standard_library().files}
    assert {"modules/os.py", "modules/json/decoder.py", "modules/unittest/mock.py"} <= keys
    assert len(keys) > 400
    folders = {part for key in keys for part in key.split("/")[:-1]}
    assert folders.isdisjoint({"site-packages", "dist-packages", "test", "tests", "__pycache__", "idle_test"})


def test_files_come_in_the_order_of_their_keys_with_their_bytes(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a/c.py", "a.py", "notes.txt")
    assert files_in(tmp_path).files == (
        Source("modules/a.py", b"a.py"),
        Source("modules/a/c.py", b"a/c.py"),
        Source("modules/b.py", b"b.py"),
    )


def test_a_folder_s_own_tests_are_files_like_any_but_environments_and_hidden_folders_are_not_its(tmp_path: Path) -> None:
    write(tmp_path, "tests/t.py", ".git/hook.py", ".venv/x.py", "env/pyvenv.cfg", "env/lib/y.py", "p/__pycache__/z.py")
    assert [source.key for source in files_in(tmp_path).files] == ["modules/tests/t.py"]


def test_a_folder_linked_to_itself_does_not_go_on_for_ever(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(files_in(tmp_path).files) == 1


def test_what_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "folder.py").mkdir()
    found = files_in(tmp_path)
    assert [source.key for source in found.files] == ["modules/a.py"]
    assert found.left_out == ("gone.py: No such file or directory",)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take only UTF-8 names")
def test_a_name_that_is_not_text_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_bytes(b"")
    assert files_in(tmp_path).left_out == ("'\\udcff.py': its name is not UTF-8",)


def test_a_folder_without_python_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoSources, match="no readable Python file"):
        files_in(tmp_path)
