"""Injected faults, at three heights: in front of a port, of boto3, and in a process that is to die for real."""

from ringfence.testing.port_faults import Call, Crash, Fault, Faulty, Freeze, When, crash, freeze, lie, reply_lost, unavailable
from ringfence.testing.process_faults import ProcessFault, process_faults
from ringfence.testing.sdk_faults import (
    Injection,
    connect_timeout,
    edited,
    held,
    inject,
    read_timeout,
    refused,
    replaced,
    through,
)

__all__ = [
    "Call",
    "Crash",
    "Fault",
    "Faulty",
    "Freeze",
    "Injection",
    "ProcessFault",
    "When",
    "connect_timeout",
    "crash",
    "edited",
    "freeze",
    "held",
    "inject",
    "lie",
    "process_faults",
    "read_timeout",
    "refused",
    "replaced",
    "reply_lost",
    "through",
    "unavailable",
]
