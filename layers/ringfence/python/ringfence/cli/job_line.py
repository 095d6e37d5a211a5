"""A job in one line, as every command tells it that has done something with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.cli.output import Output

if TYPE_CHECKING:
    from ringfence.client import JobSnapshot


def tell(output: Output, job: JobSnapshot) -> None:
    """The job in one line."""
    if output.as_json:
        output.json(job.json_text)
    else:
        output.line(*columns(job))


def columns(job: JobSnapshot) -> list[str]:
    """Its id, its state, its error."""
    return [job.job_id, state_of(job), job.error or ""]


def state_of(job: JobSnapshot) -> str:
    """The state, and whether it is about to change: a running job is cancelled by its worker, a moment later."""
    return job.state + (" (cancel requested)" if job.document.cancel_requested and not job.state.terminal else "")
