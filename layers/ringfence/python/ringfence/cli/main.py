"""``ringfence``: the command line. Each command is loaded when it is called, so that ``--help`` answers at once."""

from __future__ import annotations

import importlib
from typing import Any

import click

from ringfence.cli import exit_codes, standard_streams
from ringfence.cli.shown import safe

COMMANDS = {
    "submit": ("ringfence.cli.submit:submit", "Submit a job, or one for each line of a file."),
    "status": ("ringfence.cli.jobs:status", "Show a job."),
    "wait": ("ringfence.cli.jobs:wait", "Wait until jobs have ended."),
    "list": ("ringfence.cli.jobs:list_jobs", "List jobs, newest first."),
    "cancel": ("ringfence.cli.jobs:cancel", "Cancel jobs."),
    "redrive": ("ringfence.cli.redrive:redrive", "Give dead jobs their attempts back (scope operate)."),
    "quarantine": ("ringfence.cli.quarantine:quarantine", "Show what could not be read (scope operate)."),
    "queues": ("ringfence.cli.queues:queues", "Show the queues, or change the pace of one."),
    "reconcile": ("ringfence.cli.reconcile:reconcile", "Push lost tickets again."),
    "replay": ("ringfence.cli.replay:replay", "Put failed batches of the relay back into the log."),
    "keys": ("ringfence.cli.keys:keys", "Make, list and revoke API keys."),
    "worker": ("ringfence.cli.worker:worker", "Run jobs in processes of your own."),
    "dev": ("ringfence.cli.dev:dev", "Run the whole system on this machine."),
    "demo": ("ringfence.cli.demo:demo", "Watch it survive a frozen and a killed worker."),
}
"""Command → where it lives, and its line in ``--help``."""

DEVELOPMENT = ("dev", "demo")
"""Commands whose dependencies are optional."""


class Commands(click.Group):
    """Knows its commands by name and imports them one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module_name), attribute)
        except ImportError as fault:
            if cmd_name not in DEVELOPMENT:
                raise
            raise click.ClickException(
                f"`ringfence {cmd_name}` needs more than the library ({fault}).\nInstall it with: pip install 'ringfence[dev]'"
            ) from None
        return command

    def main(self, *arguments: Any, **options: Any) -> Any:
        program = super().main
        return standard_streams.run(lambda: program(*arguments, **options))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as fault:
            # It may quote an argument that a script had from elsewhere.
            fault.message = "\n".join(map(safe, fault.message.split("\n")))  # type: ignore[misc]
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringfence")
    except PackageNotFoundError:
        return "(not installed as a package)"


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"ringfence {_version()}")
        ctx.exit()


@click.group(cls=Commands, epilog=exit_codes.MEANING, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version.")
def main() -> None:
    """A serverless distributed job queue on AWS whose late writes cannot land."""
