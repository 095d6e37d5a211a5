"""What the exit code of every command says, for scripts to trust."""

from __future__ import annotations

from ringfence.errors import RingfenceError, StillRunning, Unavailable

OK = 0
FAILED = 1
USAGE = 2
ENDED_BADLY = 3
UNAVAILABLE = 4
TIMED_OUT = 5
OUTPUT_LOST = 6
BROKEN_PIPE = 141
"""128 + SIGPIPE: whoever read our output wants no more of it, as shells tell it of any program."""

MEANING = (
    "Exit codes: 0 done; 1 failed or refused; 2 wrong usage; 3 a job waited for ended dead or cancelled; "
    "4 the service is unavailable; 5 a job waited for had not ended in time; "
    "6 standard output could not be written: standard error says what was done."
)


def of_error(error: RingfenceError) -> int:
    """The exit code for a command that ended with this error."""
    match error:
        case Unavailable():
            return UNAVAILABLE
        case StillRunning():
            return TIMED_OUT
    return FAILED
