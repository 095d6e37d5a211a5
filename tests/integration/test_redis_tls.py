"""``rediss://``: encrypted, and only to a server whose certificate is trusted and names it."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ringfence.errors import Unavailable
from ringfence.local.redis_process import RedisFailed
from ringfence.redis.address import parse
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_kinds import binary_of
from ringfence.testing.redis_server import RedisServer


@dataclass(frozen=True)
class Encrypted:
    port: int
    certificate: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = self_signed(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    encrypted = RedisServer(binary_of("redis"), folder, ["--tls-port", str(port), *files, "--tls-auth-clients", "no"])
    try:
        encrypted.start()
    except RedisFailed as fault:
        if "tls" in str(fault).lower():
            pytest.skip("NOT TESTED with TLS: this machine's Redis is built without it")
        raise
    yield Encrypted(port, certificate)
    encrypted.kill()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ringfence test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "server.crt").write_bytes(certificate.public_bytes(encoding))
    (folder / "server.key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "server.crt", folder / "server.key"


def queue_at(url: str) -> RedisQueue:
    return RedisQueue(connect(parse(url).server), "default")


def test_a_trusted_server_is_talked_to(server: Encrypted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    queue = queue_at(f"rediss://127.0.0.1:{server.port}/q")

    assert queue.push([ticket()]) == []
    assert len(queue.lease(1, 30, wait_seconds=1)) == 1
    assert queue.lease(1, 30, wait_seconds=0.05) == []


def test_a_server_nobody_vouches_for_is_not(server: Encrypted) -> None:
    with pytest.raises(Unavailable):
        queue_at(f"rediss://127.0.0.1:{server.port}/q").lease(1, 30)


def test_a_server_of_another_name_is_not(server: Encrypted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))

    with pytest.raises(Unavailable):
        queue_at(f"rediss://localhost:{server.port}/q").lease(1, 30)
