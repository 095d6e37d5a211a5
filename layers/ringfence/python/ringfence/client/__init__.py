"""The Python client of the HTTP API."""

from ringfence.client.client import Client
from ringfence.client.jobs import JobRequest, JobSnapshot, RawJson, Submitted

__all__ = ["Client", "JobRequest", "JobSnapshot", "RawJson", "Submitted"]
