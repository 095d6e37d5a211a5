"""What all commands have in common: none may be told two things at once."""

from __future__ import annotations

from collections import Counter

import click


class Command(click.Command):
    """Refuses an option that is given twice, and one together with its opposite. click would take the last and say nothing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for parameter, times in Counter(given).items():
            if times > 1 and isinstance(parameter, click.Option) and not parameter.multiple:
                _refuse_unless_harmless(parameter, ctx)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A command with commands of its own."""

    command_class = Command


def _refuse_unless_harmless(option: click.Option, ctx: click.Context) -> None:
    if option.secondary_opts:
        raise click.UsageError(f"{option.opts[-1]} and {option.secondary_opts[-1]} exclude each other: give one, once", ctx)
    if not option.is_flag:
        raise click.UsageError(f"{option.opts[-1]} is given twice, and takes one value", ctx)
