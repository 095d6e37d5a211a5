"""What every ledger must do. Subclass `LedgerContract` and give it a ledger.

    class TestMyLedger(LedgerContract):
        @pytest.fixture
        def ledger(self, clock): ...

The ledger must use ``clock``, and know the user's tables that `ledger_effects` names.
"""

from __future__ import annotations

import pytest

from ringfence.memory.clock import ManualClock
from ringfence.ports import Ledger
from ringfence.testing.given import Given
from ringfence.testing.ledger_effects import LedgerEffects
from ringfence.testing.ledger_line import LedgerGroups, LedgerLine, LedgerManyChanges
from ringfence.testing.ledger_listing import LedgerDue, LedgerListing, LedgerRegistering
from ringfence.testing.ledger_texts import LedgerTexts
from ringfence.testing.ledger_transitions import LedgerTransitions
from ringfence.testing.ledger_unmarked import LedgerUnmarked
from ringfence.testing.ledger_values import LedgerValues


class LedgerContract(
    LedgerRegistering,
    LedgerTransitions,
    LedgerTexts,
    LedgerEffects,
    LedgerValues,
    LedgerDue,
    LedgerGroups,
    LedgerLine,
    LedgerManyChanges,
    LedgerListing,
    LedgerUnmarked,
):
    """All that `ringfence.ports.Ledger` promises."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def ledger(self, clock: ManualClock) -> Ledger:
        """An empty ledger for each test, or one shared by all: no test relies on another's absence."""
        raise NotImplementedError

    @pytest.fixture
    def honours_request_tokens(self) -> bool:
        """Whether the store recognises a transaction that is sent again by its token, as DynamoDB does and moto does not."""
        return True

    @pytest.fixture
    def given(self, ledger: Ledger, clock: ManualClock) -> Given:
        return Given(ledger, clock)
