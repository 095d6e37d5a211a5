"""``ringfence keys``: made, listed and revoked in the ledger table itself, with AWS credentials and without the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import told
from ringfence.cli.command import Group
from ringfence.cli.deployment import endpoint_option, runtime_of, table_option
from ringfence.cli.output import Output
from ringfence.http.documents import rfc3339

if TYPE_CHECKING:
    from ringfence.ports import ApiKey

scopes = click.Choice(["submit", "read", "operate", "admin"])

SCOPES_HELP = (
    "What the key may do: submit and cancel jobs; read them; operate (redrive, see the quarantine); admin (what belongs to no "
    "tenant). May be repeated; none of them includes another."
)


@click.group(cls=Group, epilog=exit_codes.MEANING)
def keys() -> None:
    """Make, list and revoke API keys. Needs AWS credentials for the ledger table."""


@keys.command(epilog=exit_codes.MEANING)
@click.option("--tenant", default="default", show_default=True, help="Whose jobs the key is for.")
@click.option("--scope", "wanted", type=scopes, multiple=True, default=("submit", "read"), show_default=True, help=SCOPES_HELP)
@click.option("--note", default="", help="What the key is for.")
@table_option
@endpoint_option
@told
def create(output: Output, tenant: str, wanted: tuple[str, ...], note: str, table: str, endpoint_url: str | None) -> None:
    """Make a key and print it. It is shown this once; only its SHA-256 is kept."""
    from ringfence.http.auth import new_key

    runtime = runtime_of(table, endpoint_url)
    secret, key = new_key(runtime.ids, runtime.clock, tenant=tenant, scopes=frozenset(wanted), note=note)
    runtime.keys.add(key)
    output.did(f"key {key.key_id} was made and its secret is lost (revoke it)")
    if output.as_json:
        output.json({**_document(key), "api_key": secret})
    else:
        output.note(f"Key {key.key_id} of tenant {tenant} ({', '.join(sorted(wanted))}). It is not shown again:")
        output.line(secret)


@keys.command("list", epilog=exit_codes.MEANING)
@table_option
@endpoint_option
@told
def list_keys(output: Output, table: str, endpoint_url: str | None) -> None:
    """List the keys, without their secrets."""
    found = sorted(runtime_of(table, endpoint_url).keys.all(), key=lambda key: key.created_at)
    if output.as_json:
        for key in found:
            output.json(_document(key))
        return
    rows = [[key.key_id, key.tenant, ",".join(sorted(key.scopes)), rfc3339(key.created_at), key.note] for key in found]
    output.table(["key", "tenant", "scopes", "created", "note"], rows)


@keys.command(epilog=exit_codes.MEANING)
@click.argument("key_id")
@table_option
@endpoint_option
@told
def revoke(output: Output, key_id: str, table: str, endpoint_url: str | None) -> int:
    """Revoke a key. Gateways that have just used it may believe it for 30 seconds more."""
    removed = runtime_of(table, endpoint_url).keys.remove(key_id)
    output.did(f"key {key_id} is revoked" if removed else "")
    if output.as_json:
        output.json({"key_id": key_id, "revoked": removed})
    else:
        output.note(f"Key {key_id} is revoked." if removed else f"There is no key {key_id}.")
    return exit_codes.OK if removed else exit_codes.FAILED


def _document(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "created_at": rfc3339(key.created_at),
        "note": key.note,
    }
