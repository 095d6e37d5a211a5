"""Entity tags: a job's version, which every write of its row raises."""

from __future__ import annotations

import re

from ringfence.job import Job

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def of(job: Job) -> str:
    """The tag of the job's document."""
    return f'"{job.version}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether the client has this document already (RFC 9110 §13.1.2, weak comparison)."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag in _TAG.findall(if_none_match)
