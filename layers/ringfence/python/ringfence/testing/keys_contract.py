"""What every store of API keys must do. Subclass `KeysContract` and give it an empty one."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from ringfence.errors import Rejected
from ringfence.ports import ApiKey, Keys


def api_key(number: int, tenant: str = "acme") -> ApiKey:
    return ApiKey(
        key_id=f"key{number}",
        sha256=hashlib.sha256(f"secret {number}".encode()).hexdigest(),
        tenant=tenant,
        scopes=frozenset({"submit", "read"}),
        created_at=1_700_000_000_000 + number,
        note="für die Webseite",
    )


class KeysContract:
    """All that `ringfence.ports.Keys` promises."""

    @pytest.fixture
    def keys(self) -> Keys:
        """An empty store for each test."""
        raise NotImplementedError

    def test_a_key_is_found_by_its_secrets_hash(self, keys: Keys) -> None:
        keys.add(api_key(1))
        keys.add(api_key(2, tenant="other"))
        assert keys.find(api_key(1).sha256) == api_key(1)
        assert keys.find(api_key(2).sha256) == api_key(2, tenant="other")

    @pytest.mark.parametrize("sha256", ["", "0" * 64, "key1", "x" * 3_000])
    def test_an_unknown_hash_finds_nothing(self, keys: Keys, sha256: str) -> None:
        keys.add(api_key(1))
        assert keys.find(sha256) is None

    def test_all_are_listed_the_oldest_first(self, keys: Keys) -> None:
        assert keys.all() == []
        for number in (12, 3, 7):
            keys.add(api_key(number))
        assert keys.all() == [api_key(3), api_key(7), api_key(12)]

    def test_a_removed_key_opens_nothing(self, keys: Keys) -> None:
        keys.add(api_key(1))
        keys.add(api_key(2))
        assert keys.remove("key1")
        assert keys.find(api_key(1).sha256) is None
        assert keys.all() == [api_key(2)]
        assert not keys.remove("key1")

    def test_the_same_key_added_twice_is_one(self, keys: Keys) -> None:
        keys.add(api_key(1))
        keys.add(api_key(1))
        assert keys.all() == [api_key(1)]

    def test_an_id_or_a_secret_that_is_taken_is_refused(self, keys: Keys) -> None:
        """No new key may change what an old one opens."""
        keys.add(api_key(1))
        for clash in (
            replace(api_key(2), key_id="key1"),
            replace(api_key(1), key_id="key2"),
            replace(api_key(1), tenant="other"),
        ):
            with pytest.raises(Rejected) as refusal:
                keys.add(clash)
            assert (refusal.value.kind, refusal.value.status) == ("key-exists", 409)
        assert keys.all() == [api_key(1)]
        assert keys.find(api_key(1).sha256) == api_key(1)

    def test_a_key_without_scopes_or_note_is_kept(self, keys: Keys) -> None:
        bare = replace(api_key(1), scopes=frozenset(), note="")
        keys.add(bare)
        assert keys.find(bare.sha256) == bare
