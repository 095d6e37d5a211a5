"""Take money from an account: once, however often the request is repeated and however many workers try."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jobs.registry import app
from ringfence import Backoff, Context, Dead

AccountId = Annotated[str, Meta(min_length=1, max_length=128)]
Cents = Annotated[int, Meta(gt=0)]


@app.job("charge", timeout="30s", backoff=Backoff(base_seconds=0.2, cap_seconds=10))
def charge(ctx: Context, account_id: AccountId, amount_cents: Cents = 5_000) -> dict[str, int]:
    """Charge $50, or ``amount_cents``. Without the funds, or without the account, the job is dead.

    A request repeated with the same idempotency key is the same job, and this attempt's writes land with the job's success
    or not at all. Two things are left to guard here:

    - Two jobs that charge one account at once have read the same balance. The second to commit finds a newer version, and is
      tried again with the balance that is left.
    - The ledger forgets a job some days after its end, and its idempotency key with it. The row in Charges does not: a request
      repeated after months is answered from it.
    """
    paid = ctx.read("Charges", {"charge_id": ctx.idempotency_key})
    if paid is not None:
        return {"charged_cents": int(paid["amount_cents"]), "balance_cents": int(paid["balance_cents"])}
    account = ctx.read("Accounts", {"account_id": account_id})
    if account is None:
        raise Dead(f"there is no account {account_id}")
    balance_cents = int(account["balance_cents"]) - amount_cents
    if balance_cents < 0:
        raise Dead(f"insufficient funds in account {account_id}: {account['balance_cents']} of {amount_cents} cents")
    ctx.effects.put(
        "Charges",
        {
            "charge_id": ctx.idempotency_key,
            "account_id": account_id,
            "amount_cents": amount_cents,
            "balance_cents": balance_cents,
        },
        unless_exists=True,
    )
    ctx.effects.update(
        "Accounts",
        {"account_id": account_id},
        set={"balance_cents": balance_cents},
        version=int(account.get("version", 0)),
    )
    return {"charged_cents": amount_cents, "balance_cents": balance_cents}
