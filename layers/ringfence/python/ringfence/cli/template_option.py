"""``--template``, for the commands that run the whole system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

DEFAULT = "template.yaml"


class _TemplateFile(click.Path):
    """A file that is there. The default one is only there in the repository's folder, and that is worth a word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == DEFAULT and not Path(DEFAULT).is_file():
            self.fail(f"there is no {DEFAULT} here; run it in the folder that holds it, or name it with --template", param, ctx)
        return super().convert(value, param, ctx)


template_option = click.option(
    "--template",
    type=_TemplateFile(exists=True, dir_okay=False, path_type=Path),
    default=DEFAULT,
    show_default=True,
    help="The SAM template to run.",
)
