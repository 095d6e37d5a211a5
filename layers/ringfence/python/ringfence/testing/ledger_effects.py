"""The part of the ledger's contract that is about effects: with the job's end or not at all, and never twice.

The ledger under test must know two tables of the user's: ``Users`` with the key ``email``, and ``Visits`` with the keys
``email`` and ``day``, all strings.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ringfence.change import Refused, Written, apply
from ringfence.effects import Check, Delete, Effect, Put, Update
from ringfence.errors import EffectRefused
from ringfence.ports import Ledger
from ringfence.testing.effect_steps import ensure_refused, held, land, write_now
from ringfence.testing.given import Given


class LedgerEffects:
    """`write` with effects, and `write_effects`."""

    @pytest.fixture
    def email(self, given: Given) -> str:
        """A key of its own for each test."""
        return f"{given.mark()}@example.org"

    # --- all or nothing ----------------------------------------------------------------------------------------------

    def test_effects_and_the_jobs_end_land_together(self, given: Given, ledger: Ledger, email: str) -> None:
        job = given.running()
        change = given.success(job)
        effects: list[Effect] = [
            Put(table="Users", item={"email": email, "name": "Ada"}),
            Update(table="Visits", key={"email": email, "day": "mon"}, set={"page": "/"}, add={"count": 1}),
        ]
        assert ledger.write(change, effects, request_token=given.mark()) == Written(apply(change, job))
        assert ledger.get(job.job_id) == apply(change, job)
        assert ledger.read_item("Users", {"email": email}) == {"email": email, "name": "Ada"}
        visit = {"email": email, "day": "mon"}
        assert ledger.read_item("Visits", visit) == {**visit, "page": "/", "count": 1}

    def test_a_refused_effect_takes_everything_with_it(self, given: Given, ledger: Ledger, email: str) -> None:
        """Issue 1, line 5: two tables, the second write fails, and neither is there."""
        taken = {"email": email, "day": "mon"}
        land(given, ledger, Put(table="Visits", item=taken))
        job = given.running()
        effects = [Put(table="Users", item={"email": email}), Put(table="Visits", item={**taken, "n": 1}, unless_exists=True)]
        with pytest.raises(EffectRefused) as refusal:
            ledger.write(given.success(job), effects, request_token=given.mark())
        assert refusal.value.effect == "put Visits (email, day, n) (unless_exists: the item is there already)"
        assert not refusal.value.version_conflict
        assert ledger.read_item("Users", {"email": email}) is None
        assert ledger.read_item("Visits", taken) == taken
        assert ledger.get(job.job_id) == job

    def test_a_late_owners_effects_do_not_land(self, given: Given, ledger: Ledger, email: str) -> None:
        late = given.running()
        current = given.taken_over(late)
        effects = [Put(table="Users", item={"email": email})]
        assert ledger.write(given.success(late), effects, request_token=given.mark()) == Refused(current)
        assert ledger.read_item("Users", {"email": email}) is None

    def test_the_rows_refusal_wins_over_an_effects(self, given: Given, ledger: Ledger, email: str) -> None:
        late = given.running()
        current = given.taken_over(late)
        effects = [Check(table="Users", key={"email": email})]
        assert ledger.write(given.success(late), effects, request_token=given.mark()) == Refused(current)

    def test_effects_for_a_job_nobody_accepted_do_not_land(self, given: Given, ledger: Ledger, email: str) -> None:
        unknown = given.row()
        effects = [Put(table="Users", item={"email": email})]
        assert ledger.write(given.success(unknown), effects, request_token=given.mark()) == Refused(None)
        assert ledger.read_item("Users", {"email": email}) is None

    def test_a_commit_whose_reply_was_lost_is_our_own_and_adds_once(self, given: Given, ledger: Ledger, email: str) -> None:
        """Issue 1, line 4. Where a store forgets the request token, the row's condition catches the repetition."""
        change, token = given.success(given.running(), "[1]"), given.mark()
        effects = [Update(table="Users", key={"email": email}, add={"count": 1})]
        first = ledger.write(change, effects, request_token=token)
        assert isinstance(first, Written)
        assert ledger.write(change, effects, request_token=token) == first
        assert ledger.read_item("Users", {"email": email}) == {"email": email, "count": 1}

    # --- conditions --------------------------------------------------------------------------------------------------

    def test_unless_exists_takes_what_is_absent_and_nothing_else(self, given: Given, ledger: Ledger, email: str) -> None:
        absent = Put(table="Users", item={"email": email, "name": "Ada", "tags": ["a"]}, unless_exists=True)
        land(given, ledger, absent)
        ensure_refused(given, ledger, absent, version_conflict=False)
        ensure_refused(given, ledger, Put(table="Users", item={"email": email}, unless_exists=True), version_conflict=False)

    @pytest.mark.parametrize("there", [{}, {"version": 0}], ids=["no version", "version 0"])
    def test_what_has_no_version_has_version_0(
        self, given: Given, ledger: Ledger, email: str, there: Mapping[str, int]
    ) -> None:
        land(given, ledger, Put(table="Users", item={"email": email, **there}))
        land(given, ledger, Update(table="Users", key={"email": email}, set={"n": 1}, version=0))
        assert ledger.read_item("Users", {"email": email}) == {"email": email, "n": 1, "version": 1}

    def test_each_versioned_write_raises_the_version(self, given: Given, ledger: Ledger, email: str) -> None:
        key = {"email": email}
        land(given, ledger, Put(table="Users", item={**key, "n": 1}, version=0))
        land(given, ledger, Update(table="Users", key=key, set={"n": 2}, version=1))
        land(given, ledger, Put(table="Users", item={**key, "n": 3, "version": 2}, version=2))
        assert ledger.read_item("Users", key) == {**key, "n": 3, "version": 3}
        land(given, ledger, Delete(table="Users", key=key, version=3))
        assert ledger.read_item("Users", key) is None

    @pytest.mark.parametrize("version", [0, 1, 3])
    @pytest.mark.parametrize("kind", ["put", "update", "delete", "check"])
    def test_another_version_is_a_conflict(self, given: Given, ledger: Ledger, email: str, kind: str, version: int) -> None:
        key, there = {"email": email}, {"email": email, "version": 2}
        land(given, ledger, Put(table="Users", item=there))
        effects: Mapping[str, Effect] = {
            "put": Put(table="Users", item=key, version=version),
            "update": Update(table="Users", key=key, add={"n": 1}, version=version),
            "delete": Delete(table="Users", key=key, version=version),
            "check": Check(table="Users", key=key, version=version),
        }
        ensure_refused(given, ledger, effects[kind], version_conflict=True)
        assert ledger.read_item("Users", key) == there

    @pytest.mark.parametrize(("there", "exists", "holds"), [(0, True, 0), (1, True, 1), (0, False, 1), (1, False, 0)])
    def test_a_check_asks_and_writes_nothing(
        self, given: Given, ledger: Ledger, email: str, there: bool, exists: bool, holds: bool
    ) -> None:
        key = {"email": email}
        if there:
            land(given, ledger, Put(table="Users", item=key))
        check = Check(table="Users", key=key, exists=exists)
        if holds:
            land(given, ledger, check)
        else:
            ensure_refused(given, ledger, check, version_conflict=False)
        assert ledger.read_item("Users", key) == (key if there else None)

    # --- effects now -------------------------------------------------------------------------------------------------

    def test_effects_now_land_while_the_job_is_held_and_leave_its_row(self, given: Given, ledger: Ledger, email: str) -> None:
        job = given.running()
        assert write_now(given, ledger, job, Put(table="Users", item={"email": email}, unless_exists=True)) is None
        assert ledger.read_item("Users", {"email": email}) == {"email": email}
        assert ledger.get(job.job_id) == job

    def test_a_late_owners_effects_now_do_not_land(self, given: Given, ledger: Ledger, email: str) -> None:
        late = given.running()
        current = given.taken_over(late)
        assert write_now(given, ledger, late, Put(table="Users", item={"email": email})) == Refused(current)
        assert ledger.read_item("Users", {"email": email}) is None

    def test_an_effect_now_of_an_earlier_attempt_is_refused(self, given: Given, ledger: Ledger, email: str) -> None:
        absent = Put(table="Users", item={"email": email}, unless_exists=True)
        job = given.running()
        write_now(given, ledger, job, absent)
        with pytest.raises(EffectRefused):
            write_now(given, ledger, given.taken_over(job), absent)

    def test_effects_now_sent_twice_with_one_token_land_once(
        self, given: Given, ledger: Ledger, email: str, honours_request_tokens: bool
    ) -> None:
        if not honours_request_tokens:
            pytest.skip("this store carries out a transaction again, whatever its token")
        job, token = given.running(), given.mark()
        add = Update(table="Users", key={"email": email}, add={"count": 1})
        for _ in range(2):
            assert ledger.write_effects(held(job), [add], request_token=token) is None
        assert ledger.read_item("Users", {"email": email}) == {"email": email, "count": 1}
