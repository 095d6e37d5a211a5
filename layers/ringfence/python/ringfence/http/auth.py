"""Who is asking, and what they may do. Nobody, and nothing, unless a key says otherwise."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from ringfence.errors import Rejected
from ringfence.http.backend import Backend
from ringfence.http.local_names import is_local
from ringfence.ids import Ids
from ringfence.ports import ApiKey, Clock

Scope = Literal["submit", "read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = ("submit", "read", "operate", "admin")
"""What a key may do to the jobs of its tenant; ``admin`` adds what belongs to no tenant. None of them includes another."""

SECRET_PREFIX = "rf_"  # what secret scanners look for
SECRET_BYTES = 32
"""256 random bits: nothing to guess, so a plain SHA-256 is enough to keep."""

CACHE_SECONDS = 30.0
"""How long a key is believed without asking again, so also how long a revoked one still works."""

CACHE_ENTRIES = 1_000
"""Bounded: a flood of wrong keys costs memory no more than this."""

BAD_KEY = "unknown, malformed or revoked API key"

_SECRET = re.compile(r"rf_[A-Za-z0-9_-]{43}")

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's authenticated sender. ``key_id`` is None where no key was asked for."""

    tenant: str
    scopes: frozenset[str]
    key_id: str | None = None


def new_key(ids: Ids, clock: Clock, *, tenant: str, scopes: frozenset[str], note: str = "") -> tuple[str, ApiKey]:
    """A fresh secret, to be shown once, and what is kept of it."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    kept = ApiKey(key_id=ids.mark(), sha256=_sha256(secret), tenant=tenant, scopes=scopes, created_at=clock.now(), note=note)
    return secret, kept


class Authenticator:
    """Turns the ``Authorization`` header into a `Caller`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._seen: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()

    def caller(self, authorization: str | None, *, host: str | None = None, origin: str | None = None) -> Caller:
        """Raises `Rejected` (401) unless the header carries a known key.

        With ``RINGFENCE_AUTH=none`` every *local* request is the default tenant's; see `_require_local`.
        """
        if self._backend.settings.auth == "none":
            self._require_local(host, origin)
            return Caller(DEFAULT_TENANT, frozenset(SCOPES))
        key = self._find(_secret_in(authorization))
        if key is None:
            raise unauthenticated(BAD_KEY)
        return Caller(key.tenant, key.scopes, key.key_id)

    def _find(self, secret: str) -> ApiKey | None:
        sha256, now = _sha256(secret), self._backend.clock.monotonic()
        cached = self._seen.get(sha256)
        if cached is not None and now < cached[0]:
            return cached[1]
        key = self._backend.keys.find(sha256)
        self._seen[sha256] = now + CACHE_SECONDS, key
        self._seen.move_to_end(sha256)
        while len(self._seen) > CACHE_ENTRIES:
            self._seen.popitem(last=False)
        return key

    def _require_local(self, host: str | None, origin: str | None) -> None:
        """Serving without keys is for one machine only.

        The functions must be talking to an emulator on this machine (a deployed function has no ``AWS_ENDPOINT_URL``), and
        the request must name this machine: a web page that the developer has open can reach a loopback port, by its
        address or by a name of its own that resolves to it, and shows itself by ``Origin`` or ``Host``.
        """
        endpoint = self._backend.settings.endpoint_url
        if endpoint is None or not is_local(urlsplit(endpoint).hostname):
            detail = "RINGFENCE_AUTH=none is for emulators on this machine only (AWS_ENDPOINT_URL is not a local address)"
            raise Rejected(detail, kind="misconfigured", status=503)
        if (host is not None and not is_local(_hostname(host))) or (origin is not None and not is_local(_hostname(origin))):
            raise Rejected("without API keys only requests to and from this machine are served", kind="not-local", status=403)


def require(caller: Caller, scope: Scope) -> None:
    """Raises `Rejected` (403) if the caller's key lacks the scope."""
    if scope not in caller.scopes:
        raise Rejected(f"this API key may not {scope}", kind="forbidden", status=403)


def unauthenticated(detail: str) -> Rejected:
    return Rejected(detail, kind="unauthenticated", status=401)


def _hostname(host_or_origin: str) -> str | None:
    try:
        return urlsplit(host_or_origin if "://" in host_or_origin else f"//{host_or_origin}").hostname
    except ValueError:
        return None


def _secret_in(authorization: str | None) -> str:
    if authorization is None:
        raise unauthenticated("an API key is needed: Authorization: Bearer rf_…")
    scheme, _, secret = authorization.strip().partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or _SECRET.fullmatch(secret) is None:
        raise unauthenticated(f"{BAD_KEY}; the header is Authorization: Bearer rf_…")
    return secret


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
