"""How a run judges itself: by ratios taken within a round, to the peer with the best median."""

from __future__ import annotations

from .claims import Claim, judged
from .engine import BATCHES, Compared
from .own import Own
from .results import DRAIN1, P50, Results

EVEN = Compared(script_us=(10.0,), ringfence_us=(10.0,))


def run_of(drained: dict[str, list[float]]) -> Results:
    """Jobs a second of one worker, by system and round."""
    results = Results()
    for system, figures in drained.items():
        for number, figure in enumerate(figures, 1):
            results.add(DRAIN1, system, number, figure)
    return results


def claims_of(results: Results, own: Own | None = None) -> dict[str, Claim]:
    own = own or Own(engine={batch: [EVEN] for batch in BATCHES}, push=[EVEN])
    return {claim.text: claim for claim in judged(results, own)}


def test_a_ratio_is_taken_within_a_round_to_the_peer_with_the_best_median() -> None:
    results = run_of({"ringfence": [30.0, 3.0, 60.0], "quick": [20.0, 1.0, 50.0], "lucky once": [10.0, 10.0, 90.0]})

    assert results.best(DRAIN1) == "quick"
    assert results.ratios(DRAIN1) == [1.5, 3.0, 1.2]
    assert results.ratio(DRAIN1) == 1.5


def test_of_times_the_least_is_the_best() -> None:
    results = Results()
    for system, figure in {"ringfence": 1.0, "slow": 2.0, "quick": 0.5}.items():
        results.add(P50, system, 1, figure)

    assert results.best(P50) == "quick"
    assert claims_of(results)["half of the jobs begin no later than the best peer's"].true is False


def test_a_claim_is_true_at_its_bound_false_below_it_and_not_judged_without_a_peer() -> None:
    text = "one worker drains at least 1.5 times as fast as the best peer"

    assert claims_of(run_of({"ringfence": [30.0], "peer": [20.0]}))[text].true is True
    assert claims_of(run_of({"ringfence": [29.9], "peer": [20.0]}))[text].true is False
    assert claims_of(run_of({"ringfence": [30.0]}))[text].true is None


def test_a_round_in_which_the_best_peer_failed_does_not_count() -> None:
    results = run_of({"ringfence": [30.0, 10.0], "peer": [20.0]})

    assert results.ratios(DRAIN1) == [1.5]


def test_a_job_that_did_not_run_makes_a_claim_false() -> None:
    results = run_of({})
    assert claims_of(results)["every job ran, none twice"].true is True
    results.wrong.append("ringfence: 1 jobs did not run")
    assert claims_of(results)["every job ran, none twice"].true is False


def test_the_engine_is_compared_by_the_cpu_time_of_a_message() -> None:
    slow = Compared(script_us=(7.9, 8.0, 7.9), ringfence_us=(10.0, 10.0, 10.0))
    claims = claims_of(run_of({}), Own(engine={32: [slow]}, push=[EVEN]))

    assert claims["the engine reaches 0.8 of a bare script in batches of 32"].true is False
