"""The part of the ledger's contract that is about texts: they come back as they went in, whatever their size."""

from __future__ import annotations

import pytest

from ringfence import jsontext, transitions
from ringfence.change import Written
from ringfence.ports import Ledger
from ringfence.testing.given import Given

EXACT_TEXTS = {
    "beyond a double": '{"n":9007199254740993}',
    "large exponent": "[1e300]",
    "negative zero": "[-0.0]",
    "as it was written": "[1E5,1.0,1.10,100000]",
    "white space": ' {\n\t"a" : 1 }\r\n',
    "unicode": '"žluťoučký 🐎 \u202e\u0000é"'.replace("\u0000", "\\u0000"),
    "escapes": '"\\ud83d\\udc0e\\/\\u001f\\""',
    "control characters": '"\x7f\x85\u2028\u2029\ufeff"',
    "empty": "null",
    "a thousand digits": "[" + "7" * 1_000 + "]",
}

SIZES_BYTES = (0, 1, 599, 600, 601, 1_024, 32 * 1024)
"""Around the size up to which a text may lie in its job's row, and the largest there is."""

exact_texts = pytest.mark.parametrize("text", EXACT_TEXTS.values(), ids=EXACT_TEXTS)
sizes = pytest.mark.parametrize("size_bytes", SIZES_BYTES)


def text_of(size_bytes: int, letter: str = "x") -> str:
    """Text of so many bytes; most of it two bytes a character."""
    return "é" * (size_bytes // 2) + letter * (size_bytes % 2)


class LedgerTexts:
    """Payload, checkpoint, result and error."""

    @exact_texts
    def test_every_text_comes_back_exactly(self, given: Given, text: str) -> None:
        """Issue 1, line 6: values survive, and the hash of what the job sees is the gateway's."""
        job = given.running(text)
        assert job.payload == text
        assert job.payload_sha256 == jsontext.sha256(text)
        job = given.exactly_done(transitions.checkpoint(job, text, write_id=given.mark()), job)
        given.exactly_done(given.success(job, text), job)

    @sizes
    def test_a_payload_of_any_size_is_there_from_the_first(self, given: Given, ledger: Ledger, size_bytes: int) -> None:
        jobs = [given.row(text_of(size_bytes)), given.row("[]")]
        assert [ledger.register(job) for job in jobs] == [None, None]
        assert [ledger.get(job.job_id) for job in jobs] == jobs

    @sizes
    def test_a_claim_returns_the_payload(self, given: Given, size_bytes: int) -> None:
        before = given.queued(text_of(size_bytes))
        given.exactly_done(given.claim(before), before)

    @sizes
    def test_a_refusal_returns_the_whole_row(self, given: Given, size_bytes: int) -> None:
        given.refused(given.claim(given.running(text_of(size_bytes))))

    @sizes
    def test_a_repeated_registration_returns_the_row_that_is_there(self, given: Given, ledger: Ledger, size_bytes: int) -> None:
        there = given.queued(text_of(size_bytes))
        again = given.row(text_of(size_bytes, "y"), job_id=there.job_id)
        assert ledger.register(again) == there
        assert ledger.get(there.job_id) == there

    @sizes
    def test_results_errors_and_checkpoints_of_any_size(self, given: Given, size_bytes: int) -> None:
        job = given.running(text_of(500))
        job = given.exactly_done(transitions.checkpoint(job, text_of(size_bytes), write_id=given.mark()), job)
        now = given.clock.now()
        error = text_of(min(size_bytes, transitions.ERROR_LENGTH))
        job = given.exactly_done(transitions.retry_soon(job, error, write_id=given.mark(), now=now, run_at=now), job)
        job = given.claimed(job)
        given.exactly_done(given.success(job, text_of(size_bytes)), job)

    def test_a_checkpoint_grows_shrinks_and_goes(self, given: Given) -> None:
        job = given.running()
        for size_bytes in (10, 5_000, 20, 6_000, 7_000, 0):
            job = given.exactly_done(transitions.checkpoint(job, text_of(size_bytes), write_id=given.mark()), job)
        given.exactly_done(given.success(job), job)

    @pytest.mark.parametrize(("before_bytes", "after_bytes"), [(10, 20), (10, 5_000), (5_000, 10), (5_000, 6_000)])
    def test_a_redrive_may_edit_the_payload(self, given: Given, before_bytes: int, after_bytes: int) -> None:
        dead = given.dead(payload=text_of(before_bytes))
        text = text_of(after_bytes, "y")
        edited = transitions.Edited(text, jsontext.sha256(text), jsontext.sha256("what was asked for"))
        now = given.clock.now()
        change = transitions.redrive(dead, write_id=given.mark(), now=now, due_id=given.mark(), edited=edited)
        assert given.exactly_done(change, dead).payload == text

    def test_a_late_owners_large_text_harms_nobody(self, given: Given) -> None:
        late = given.running()
        current = given.taken_over(late)
        current = given.done(transitions.checkpoint(current, text_of(5_000), write_id=given.mark()))
        assert given.refused(transitions.checkpoint(late, text_of(5_000, "z"), write_id=given.mark())) == current

    def test_a_large_result_whose_reply_was_lost_is_our_own(self, given: Given, ledger: Ledger) -> None:
        change = given.success(given.running(text_of(2_000)), text_of(3_000))
        first = ledger.write(change)
        assert isinstance(first, Written)
        assert ledger.write(change) == first

    def test_an_error_with_half_a_character_is_kept_all_the_same(self, given: Given) -> None:
        """Python puts lone surrogates into messages about undecodable file names; no store takes them."""
        assert "\\udcff" in (given.dead(error="no such file: \udcff").error or "")
