"""API keys in memory."""

from __future__ import annotations

import threading

from ringfence.errors import Rejected
from ringfence.ports import ApiKey


class MemoryKeys:
    """Keeps the keys of one process; safe to share between threads."""

    def __init__(self) -> None:
        self._by_id: dict[str, ApiKey] = {}
        self._lock = threading.Lock()

    def find(self, sha256: str) -> ApiKey | None:
        with self._lock:
            return next((key for key in self._by_id.values() if key.sha256 == sha256), None)

    def add(self, key: ApiKey) -> None:
        """The very same key twice is one. Raises `Rejected` (409, ``key-exists``) if its id or secret is taken."""
        with self._lock:
            taken = [other for other in self._by_id.values() if other.key_id == key.key_id or other.sha256 == key.sha256]
            if taken not in ([], [key]):
                raise Rejected("there is a key with this id or secret", kind="key-exists", status=409)
            self._by_id[key.key_id] = key

    def remove(self, key_id: str) -> bool:
        with self._lock:
            return self._by_id.pop(key_id, None) is not None

    def all(self) -> list[ApiKey]:
        with self._lock:
            return sorted(self._by_id.values(), key=lambda key: (key.created_at, key.key_id))
