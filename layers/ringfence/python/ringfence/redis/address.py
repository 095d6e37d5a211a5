"""Where a queue lives: the URLs of RINGFENCE_QUEUES that name a Redis."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ringfence.settings import Misconfigured

SCHEMES = ("redis", "rediss")
_PORT = 6379
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}")
"""No braces: they would decide the cluster's slot, which is the queue's name."""


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis, or one of the nodes by which a cluster is found."""

    host: str
    port: int = _PORT
    db: int = 0
    tls: bool = False
    cluster: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """A queue's server, and its name there."""

    server: Server
    name: str


def parse(url: str) -> Address:
    """Read ``redis://[[user]:password@]host[:port]/name[?db=1][&cluster=1]``; ``rediss`` is TLS with a verified certificate.

    Raises `Misconfigured`, which never tells the password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORT
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise Misconfigured("a URL in RINGFENCE_QUEUES is not redis://host:port/name") from None
    name = parts.path.rpartition("/")[2]
    shown = f"{parts.scheme}://{host}:{port}{parts.path}"
    if parts.scheme not in SCHEMES or not host:
        raise Misconfigured(f"RINGFENCE_QUEUES: {shown} is not redis://host:port/name")
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"RINGFENCE_QUEUES: {shown} does not end in a queue's name ({_NAME.pattern})")
    db, cluster = options.pop("db", "0"), options.pop("cluster", "0")
    if options or not db.isdecimal() or cluster not in ("0", "1"):
        raise Misconfigured(f"RINGFENCE_QUEUES: {shown} may have ?db=NUMBER and ?cluster=1, nothing else")
    if cluster == "1" and db != "0":
        raise Misconfigured(f"RINGFENCE_QUEUES: {shown} names a database, and a cluster has only one")
    server = Server(
        host=host,
        port=port,
        db=int(db),
        tls=parts.scheme == "rediss",
        cluster=cluster == "1",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )
    return Address(server, name)
