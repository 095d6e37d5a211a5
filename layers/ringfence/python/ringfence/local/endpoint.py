"""Where an emulator of AWS answers, and how to reach it: clients for this process, variables for others."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config

from ringfence.errors import RingfenceError
from ringfence.settings import is_http_url

Kind = Literal["ministack", "moto", "other"]

REGION = "us-east-1"
"""The region when the environment names none. Emulators serve every region; AWS is never called."""

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""What every emulator takes, and AWS refuses."""

_CONNECTIONS = 50
"""Connections per client: as many as threads of event sources may call at once."""


CONNECT_SECONDS = 5.0
"""How long an emulator may take to be reached: it is on this machine, or near."""


class NotAnEmulator(RingfenceError):
    """`ringfence dev` only talks to emulators: it creates and deletes without asking."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An emulator. ``services`` holds the URLs of those services that answer elsewhere (``dynamodb`` → URL)."""

    kind: Kind
    url: str
    region: str = REGION
    services: Mapping[str, str] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """A boto3 client of the emulator, deaf to the credentials, profile settings and proxies of the environment."""
        config = Config(
            max_pool_connections=_CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 3},
            proxies={},
            s3={"addressing_style": "path"},
        )
        with _building:
            return deaf_session(self.region).client(service, endpoint_url=self.services.get(service, self.url), config=config)

    def environment(self) -> dict[str, str]:
        """The variables with which boto3, in another process, finds the emulator and nothing else."""
        return {
            **_CREDENTIALS,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.url,
            **{_variable(service): url for service, url in self.services.items()},
            # The user's own files may name another endpoint, a proxy or a profile.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


_building = threading.Lock()
"""Clients may be shared by threads; building one may not."""


@cache
def deaf_session(region: str) -> boto3.session.Session:
    """boto3 without the user's profile, files and credentials: none can be missing then, or lead to an account.

    One for all clients of a region: a new one would read what botocore knows of all services anew, for 50 to 100 ms.
    """
    # Where botocore looks, in its order: its files, variables, a default, and how to read what is found.
    nowhere = dict.fromkeys(("profile", "ca_bundle"), (None, None, None, None))
    no_files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    return boto3.session.Session(
        aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=region,
        botocore_session=botocore.session.Session(session_vars={**nowhere, **no_files}),
    )


def region_of(environment: Mapping[str, str]) -> str:
    """The region that ``environment`` names, else `REGION`."""
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or REGION


def other_endpoint(endpoint_url: str | None, environment: Mapping[str, str]) -> Endpoint | None:
    """The emulator that is already running, if one is named: by ``endpoint_url``, else by ``AWS_ENDPOINT_URL``, else by
    ``LOCALSTACK_HOST`` (then localstack-client's defaults apply). ``AWS_ENDPOINT_URL_<SERVICE>`` counts beside any of them.

    Raises `NotAnEmulator` for a URL of AWS itself.
    """
    url = endpoint_url or environment.get("AWS_ENDPOINT_URL")
    if not url and environment.get("LOCALSTACK_HOST"):
        from localstack_client.config import get_service_endpoint

        try:
            url = get_service_endpoint("sqs")
        except RuntimeError as fault:
            raise NotAnEmulator(f"LOCALSTACK_HOST: {fault}") from None
    if not url:
        return None
    services = {
        service: environment[_variable(service)]
        for service in ("cloudformation", "dynamodb", "kinesis", "lambda", "s3", "sqs", "sts")
        if environment.get(_variable(service))
    }
    for each in (url, *services.values()):
        _refuse_aws(each)
    return Endpoint("other", url.rstrip("/"), region_of(environment), services)


def ensure_answering(endpoint: Endpoint) -> None:
    """Raises `NotAnEmulator` unless somebody listens at every address of the emulator."""
    for url in sorted({endpoint.url, *endpoint.services.values()}):
        parts = urlsplit(url)
        try:
            socket.create_connection(
                (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)), CONNECT_SECONDS
            ).close()
        except OSError as fault:
            raise NotAnEmulator(f"no emulator answers at {url}: {fault.strerror or fault}") from None


def _variable(service: str) -> str:
    """https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html"""
    return f"AWS_ENDPOINT_URL_{service.upper()}"


def _refuse_aws(url: str) -> None:
    if not is_http_url(url):
        raise NotAnEmulator(f"not the URL of an emulator: {url!r} (expected something like http://127.0.0.1:4566)")
    if (urlsplit(url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn", ".aws", ".api.aws")):
        raise NotAnEmulator(f"{url} is AWS itself. {NotAnEmulator.__doc__}")
