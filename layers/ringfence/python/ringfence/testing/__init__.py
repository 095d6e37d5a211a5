"""For tests of your jobs and your adapters. Nothing is imported before it is used.

`assert_effect_lands_once` runs a job of yours under every fault; `Receiver` stands for a service outside DynamoDB;
`MemorySystem` is the whole queue in memory. With pytest these are fixtures: `ringfence.testing.plugin`.

Who writes an adapter subclasses the contract suite of its port: `KeysContract`, `LedgerContract`, `LimiterContract`,
`LogContract`, `QuarantineContract`, `QueueContract`, `SettingsContract`, `SweepsContract`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.testing.effect_lands_once import assert_effect_lands_once as assert_effect_lands_once
    from ringfence.testing.fault_report import FaultReport as FaultReport
    from ringfence.testing.fault_report import Finding as Finding
    from ringfence.testing.keys_contract import KeysContract as KeysContract
    from ringfence.testing.ledger_contract import LedgerContract as LedgerContract
    from ringfence.testing.limiter_contract import LimiterContract as LimiterContract
    from ringfence.testing.log_contract import LogContract as LogContract
    from ringfence.testing.quarantine_contract import QuarantineContract as QuarantineContract
    from ringfence.testing.queue_contract import QueueContract as QueueContract
    from ringfence.testing.receiver import Receiver as Receiver
    from ringfence.testing.receiver import ReceiverRefused as ReceiverRefused
    from ringfence.testing.settings_contract import SettingsContract as SettingsContract
    from ringfence.testing.sweeps_contract import SweepsContract as SweepsContract
    from ringfence.testing.system import MemorySystem as MemorySystem

_HOME = {
    "FaultReport": "fault_report",
    "Finding": "fault_report",
    "KeysContract": "keys_contract",
    "LedgerContract": "ledger_contract",
    "LimiterContract": "limiter_contract",
    "LogContract": "log_contract",
    "MemorySystem": "system",
    "QuarantineContract": "quarantine_contract",
    "QueueContract": "queue_contract",
    "Receiver": "receiver",
    "ReceiverRefused": "receiver",
    "SettingsContract": "settings_contract",
    "SweepsContract": "sweeps_contract",
    "assert_effect_lands_once": "effect_lands_once",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"ringfence.testing.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ringfence.testing' has no attribute {name!r}")
