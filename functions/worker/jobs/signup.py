"""Register a user in two tables, or in neither."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jobs.registry import app
from ringfence import Context

Email = Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s]+\Z", max_length=254)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


@app.job("signup", timeout="30s")
def signup(ctx: Context, email: Email, name: Name) -> dict[str, str]:
    """Both rows and the job's success are one transaction. An address that is taken makes the job dead, with neither row."""
    ctx.effects.put("Users", {"email": email, "name": name, "signup": ctx.job_id}, unless_exists=True)
    ctx.effects.put("Profiles", {"email": email, "display_name": name})
    return {"email": email}
