"""Every command line of ours that the README prints is one that the command takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from ringfence.cli import exit_codes
from ringfence.cli.main import Commands

README = (Path(__file__).parents[2] / "README.md").read_text()


def printed() -> list[str]:
    """What follows ``ringfence`` in the README's blocks, one command each."""
    blocks = re.findall(r"```sh[^\n]*\n(.*?)```", README, re.DOTALL)
    text = "".join(blocks).replace("\\\n", " ")
    nested = r"\$\(([^()]*)\)"
    lines = [*re.sub(nested, "SOMETHING", text).splitlines(), *re.findall(nested, text)]
    found = [re.findall(r"(?:^|bin/| )ringfence (?!import )([a-z][^|&#)>]*)", line.partition(" # ")[0]) for line in lines]
    return sorted({command.strip() for commands in found for command in commands})


@pytest.mark.parametrize("command", printed())
def test_a_printed_command_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_LEDGER_TABLE", "ledger")  # as .ringfence/latest/environment does
    name, *options = shlex.split(command)
    found = Commands().get_command(click.Context(Commands()), name)
    assert found is not None
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), options.pop(0))
    assert found is not None
    found.make_context(name, options)


def test_the_commands_of_the_readme_are_found() -> None:
    assert {command.split()[0] for command in printed()} >= {"submit", "queues", "worker", "dev", "keys", "wait", "redrive"}


def test_the_exit_codes_of_the_readme_are_those_of_the_help() -> None:
    table = README.partition("### Exit codes\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| (\d) \| ([^,|]+)", table.replace("`", ""), re.MULTILINE)
    assert [f"{code} {text.strip()}" for code, text in told] == re.findall(r"\d [^;:.]+", exit_codes.MEANING.partition(": ")[2])
