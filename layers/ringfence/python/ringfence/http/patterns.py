"""The patterns of the API's texts, and what to say to somebody whose text does not match."""

from __future__ import annotations

from ringfence.job import Guarantee

NAME = r"^[A-Za-z0-9._-]{1,64}\Z"
ORDERING_KEY = r"^[ -~]{1,128}\Z"
IDEMPOTENCY_KEY = r"^(?=.*[A-Za-z0-9])[!-~]([ -~]{0,253}[!-~])?\Z"
"""No space at either end, and at least one letter or digit: a key put together from parts that were all missing (``":"``,
``"--"``) would make strangers share one job."""

_WORDS = {
    NAME: "1 to 64 letters, digits, dots, dashes or underscores",
    ORDERING_KEY: "1 to 128 printable ASCII characters",
    IDEMPOTENCY_KEY: "1 to 255 printable ASCII characters, a letter or digit among them and no space at either end",
}


def in_words(complaint: str) -> str:
    """A validator's complaint with the regular expression in it replaced by what it stands for."""
    for pattern, words in _WORDS.items():
        if complaint.endswith(f"matching regex {pattern!r}"):
            return f"expected {words}"
    if complaint.startswith("Invalid enum value"):  # the only one that may be sent
        return f"{complaint}; it is {' or '.join(Guarantee)}"
    return complaint
