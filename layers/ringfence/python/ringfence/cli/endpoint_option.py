"""``--endpoint-url``."""

from __future__ import annotations

from typing import Any

import click

from ringfence.settings import is_http_url


class EndpointUrl(click.ParamType[str]):
    """``http://127.0.0.1:4566``. Empty: not given."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value and not is_http_url(value):
            self.fail(f"{value!r} is not a URL such as http://127.0.0.1:4566", param, ctx)
        return str(value)


ENDPOINT_URL = EndpointUrl()
