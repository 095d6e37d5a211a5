"""Which host names mean this machine."""

from __future__ import annotations

import ipaddress

_NAMES = ("localhost", "localhost.localstack.cloud", "localstack", "host.docker.internal")
_DOMAINS = (".localhost", ".localhost.localstack.cloud")
"""LocalStack's names resolve to the loopback address; a function's URL there is a subdomain.
https://docs.localstack.cloud/references/network-troubleshooting/"""


def is_local(hostname: str | None) -> bool:
    """Whether requests to this host stay on this machine (or go to the LocalStack container beside the caller's)."""
    if not hostname:
        return False
    name = hostname.lower()
    if name in _NAMES or name.endswith(_DOMAINS):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
