"""Who may run beside whom in one process.

When a process dies, nothing tells which of its jobs killed it. All come again, and would meet again, until the innocent ones
had used up their attempts along with the guilty one. So a job whose worker was lost twice in a row runs alone: if it is the
one, it takes nobody along, and if it is not, nobody takes it along. Whoever waits for that has not claimed its job yet, and
loses no attempt by waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ringfence.clock import SystemClock
from ringfence.ports import Clock

LOOK_SECONDS = 0.5
"""How often somebody who waits looks whether there is still a reason to. It also looks whenever somebody comes or leaves."""

MOST_LOOKS = 60
"""After so many without any such news its message goes back: the others may take long yet, and another process may have room
for it."""

ALONE_LOOKS = 20
"""The same for somebody who wants to be alone, and keeps newcomers out meanwhile."""

LATER_SECONDS = 60.0
"""So long nobody is waited for again then: who runs now takes long, and the rest shall not wait for it."""


class Company:
    """The jobs that run in one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.together = 0
        """How many have a seat among others."""
        self.waiting = 0
        """How many want to be alone."""
        self.alone: Seat | None = None
        self.not_before = 0.0
        """On the monotonic clock: until then nobody is waited for."""

    def enter(self, given_up: Callable[[], bool]) -> Seat | None:
        """A seat among the others, once nobody is or wants to be alone. None if it was given up before."""
        with self.lock:
            looks = 0
            while self.alone is not None or self.waiting:
                if given_up() or looks == MOST_LOOKS:
                    return None
                looks += not self.changed.wait(LOOK_SECONDS)
            self.together += 1
        return Seat(self)


class Seat:
    """A job's place in the company, from before its claim until its outcome is taken."""

    __slots__ = ("_among_others", "_company")

    def __init__(self, company: Company) -> None:
        self._company, self._among_others = company, True

    def be_alone(self, given_up: Callable[[], bool]) -> bool:
        """Wait until all others have left, and keep newcomers out. False if it was given up before, or would be in vain."""
        company = self._company
        with company.lock:
            self._give_up_place()
            if company.together and company.clock.monotonic() < company.not_before:
                return False
            company.waiting += 1
            company.changed.notify_all()
            try:
                looks = 0
                while company.together or company.alone not in (None, self):
                    if looks == ALONE_LOOKS:
                        company.not_before = company.clock.monotonic() + LATER_SECONDS
                    if given_up() or looks == ALONE_LOOKS:
                        return False
                    looks += not company.changed.wait(LOOK_SECONDS)
                company.alone = self
            finally:
                company.waiting -= 1
                if company.alone is not self:
                    company.changed.notify_all()  # those who were kept out
        return True

    def leave(self) -> None:
        """Make room. Leaving again does nothing."""
        company = self._company
        with company.lock:
            self._give_up_place()
            was_alone = company.alone is self
            if was_alone:
                company.alone = None
            if was_alone or company.waiting:
                company.changed.notify_all()

    def _give_up_place(self) -> None:
        """Under the lock."""
        if self._among_others:
            self._among_others = False
            self._company.together -= 1
