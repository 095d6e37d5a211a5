"""The counting that the job index_module and the demo's plain loop share."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize

import pytest

from jobs.module_counts import MAX_SOURCE_BYTES, Counts, Unparseable, count_module, package_of

SOURCE = b'''\
"""A module."""
import os, sys
from pathlib import Path

class Outer:
    class Inner: ...
    async def f(self):
        import json
        return lambda: json

def g(): ...
'''


def test_what_is_nested_counts_and_a_statement_of_two_imports_is_one() -> None:
    assert count_module(SOURCE, "m.py") == Counts(lines=11, classes=2, functions=2, imports=3)


def test_an_empty_file_is_a_module_of_nothing() -> None:
    assert count_module(b"", "m.py") == Counts(lines=0, classes=0, functions=0, imports=0)


def test_a_real_module_has_as_many_functions_as_its_tokens_say() -> None:
    source = inspect.getsource(ast).encode()
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    counted = count_module(source, "ast.py")
    assert counted.functions == sum(token.string == "def" for token in tokens) > 100
    assert counted.classes == sum(token.string == "class" for token in tokens)


def test_a_file_is_read_in_the_encoding_that_it_declares() -> None:
    assert count_module("# coding: latin-1\ndef f(): 'é'\n".encode("latin-1"), "m.py").functions == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"def f(:\n", "invalid syntax (m.py, line 1)"),
        (b"if x:\n  a\n b\n", "IndentationError: unindent does not match"),
        (b"x = 1\0", "null bytes"),
        (b"x = '\xe9'\n", "codec can't decode"),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
        (b"(" * 1000 + b")" * 1000, "too many nested parentheses"),
        (b"-" * 50_000 + b"1", "Error"),
        (b"1+" * 400_000 + b"1", "Error"),
        (b"#" * (MAX_SOURCE_BYTES + 1), f"more than {MAX_SOURCE_BYTES} bytes"),
    ],
    ids=["syntax", "indentation", "null", "undecodable", "encoding", "nested", "unary", "long sum", "huge"],
)
def test_what_the_parser_refuses_is_unparseable_in_its_words(source: bytes, message: str) -> None:
    with pytest.raises(Unparseable) as refused:
        count_module(source, "m.py")
    assert message in str(refused.value)


def test_a_file_of_exactly_the_largest_size_is_parsed() -> None:
    assert count_module(b"#" * MAX_SOURCE_BYTES, "m.py").lines == 1


@pytest.mark.parametrize(("key", "package"), [("modules/json/decoder.py", "modules/json"), ("setup.py", "."), ("/x.py", "/")])
def test_a_file_belongs_to_its_folder(key: str, package: str) -> None:
    assert package_of(key) == package
