"""Steps of the tests about effects: carry one out with a job's success, and see what comes of it."""

from __future__ import annotations

import pytest

from ringfence.change import Change, Refused, Written
from ringfence.effects import Effect
from ringfence.errors import EffectRefused, Rejected
from ringfence.job import Job
from ringfence.ports import Ledger
from ringfence.testing.given import Given
from ringfence.transitions import still_mine


def land(given: Given, ledger: Ledger, effect: Effect) -> None:
    """Commit a job with this one effect."""
    outcome = ledger.write(given.success(given.running()), [effect], request_token=given.mark())
    assert isinstance(outcome, Written)


def ensure_refused(given: Given, ledger: Ledger, effect: Effect, *, version_conflict: bool) -> None:
    """The effect's condition does not hold, and the job is still running."""
    job = given.running()
    with pytest.raises(EffectRefused) as refusal:
        ledger.write(given.success(job), [effect], request_token=given.mark())
    assert refusal.value.version_conflict == version_conflict
    assert (f"(version {effect.version} expected)" in str(refusal.value)) == version_conflict
    assert ledger.get(job.job_id) == job


def ensure_rejected(given: Given, ledger: Ledger, *effects: Effect) -> None:
    """The effects can never be carried out, and the job is still running."""
    job = given.running()
    with pytest.raises(Rejected) as refusal:
        ledger.write(given.success(job), effects, request_token=given.mark())
    assert refusal.value.kind == "bad-effect"
    assert ledger.get(job.job_id) == job


def write_now(given: Given, ledger: Ledger, job: Job, effect: Effect) -> Refused | None:
    """Carry out one effect without ending the job."""
    return ledger.write_effects(held(job), [effect], request_token=given.mark())


def held(job: Job) -> Change:
    """What effects without an end rely on."""
    return Change(job_id=job.job_id, write_id="", condition=still_mine(job), set={}, seen=job)
