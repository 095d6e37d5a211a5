"""A fake of a service outside DynamoDB: a payment provider, a mailer, somebody's API."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.testing.port_faults import Call

Through = Callable[[str, Callable[..., Any], Call], Any]
"""What carries out a call, and may strike it."""


class ReceiverRefused(Exception):
    """The receiver refused a call: its token is late or missing, or its key was used with other arguments."""


@dataclass(frozen=True, slots=True)
class Received:
    """One call, as it arrived."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    idempotency_key: Any
    token: Any
    landed: bool
    """Whether it had an effect: false for a repeated key, and for what was refused."""


class Receiver:
    """Put it where your job calls the service; it records every call, and refuses what the real one would refuse.

        stripe = Receiver("stripe", answer={"paid": True})
        monkeypatch.setattr("shop.payments.charge", stripe)            # or stripe.awaited, where the job awaits it

    With ``knows_keys`` (the default, and what Stripe and its like do) a call whose idempotency key was seen has no second
    effect and gets the first one's answer; the same key with other arguments is refused, and a call without a key is a new
    one. With ``knows_tokens`` a call without a token, or with one below the highest seen, is refused (`ReceiverRefused`).
    Set both as the real service is: a receiver that knows neither cannot be called safely by any job.

    ``key`` and ``token`` are the names of the keyword arguments that carry the two. ``answer`` is returned, or called with
    the arguments if it can be called (it must not call the receiver). ``unreachable`` is what a lost reply raises in the job.
    """

    def __init__(
        self,
        name: str = "receiver",
        *,
        knows_keys: bool = True,
        knows_tokens: bool = False,
        key: str = "idempotency_key",
        token: str = "token",
        answer: Any = None,
        unreachable: type[Exception] = ConnectionError,
    ) -> None:
        self.name, self.knows_keys, self.knows_tokens, self.unreachable = name, knows_keys, knows_tokens, unreachable
        self._key, self._token, self._answer = key, token, answer
        self._lock = threading.Lock()
        self._calls: list[Received] = []
        self._first: dict[Any, tuple[Any, Any]] = {}
        """By key: what the call said, and what it was answered."""
        self._through: Through = _straight

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._through(f"receiver:{self.name}", self._receive, Call("call", args, kwargs))

    async def awaited(self, *args: Any, **kwargs: Any) -> Any:
        """The same, for a job that awaits it."""
        return self(*args, **kwargs)

    @property
    def calls(self) -> list[Received]:
        """Every call since the last `forget`, in the order of arrival."""
        with self._lock:
            return list(self._calls)

    @property
    def landed(self) -> list[Received]:
        """Those that had an effect."""
        return [call for call in self.calls if call.landed]

    def forget(self, through: Through | None = None) -> None:
        """Begin anew. ``through`` carries out the calls from now on: how a fault run strikes them."""
        with self._lock:
            self._calls, self._first = [], {}
            self._through = through or _straight

    def _receive(self, *args: Any, **kwargs: Any) -> Any:
        said_args, said = copy.deepcopy((args, kwargs))
        key, token = said.get(self._key), said.get(self._token)
        request = said_args, {name: value for name, value in said.items() if name != self._token}
        with self._lock:
            known = self._first.get(key) if self.knows_keys and key is not None else None
            refusal = self._refusal(token)
            if refusal is None and known is not None and known[0] != request:
                refusal = f"the key {key!r} was used with other arguments"
            landed = known is None and refusal is None
            self._calls.append(Received(said_args, said, key, token, landed))
            if refusal is not None:
                raise ReceiverRefused(f"{self.name}: {refusal}")
            if known is not None:
                return known[1]
            answer = self._answer(*args, **kwargs) if callable(self._answer) else copy.deepcopy(self._answer)
            if key is not None:
                self._first[key] = request, answer
            return answer

    def _refusal(self, token: Any) -> str | None:
        """What is wrong with the token, if anything."""
        if not self.knows_tokens:
            return None
        if token is None:
            return "the call names no token"
        highest = max((call.token for call in self._calls if call.landed), default=token)
        return f"token {token} is late; {highest} was seen" if token < highest else None


def _straight(_name: str, real: Callable[..., Any], call: Call) -> Any:
    return real(*call.args, **call.kwargs)
