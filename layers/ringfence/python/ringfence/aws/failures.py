"""What went wrong in a call to AWS: its short name, and whether the same call may succeed later."""

from __future__ import annotations

from botocore.exceptions import ClientError, ConnectionError, CredentialRetrievalError, HTTPClientError, NoCredentialsError

from ringfence.errors import Unavailable

FAILURES = (ClientError, ConnectionError, HTTPClientError, CredentialRetrievalError, NoCredentialsError)
"""What a call raises for reasons outside this program. A `ParamValidationError` is not among them: it is a bug of ours."""

THROTTLES = frozenset(
    {
        "LimitExceededException",
        "OverLimit",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "KMSThrottlingException",
        "KmsThrottled",
    }
)

RETRY_THROTTLED_SECONDS = 1.0
RETRY_UNREACHABLE_SECONDS = 5.0


def short_code(code: str) -> str:
    """An error code without the service's prefix: ``AWS.SimpleQueueService.X`` and ``com.amazonaws.sqs#X`` are both X."""
    return code.rpartition("#")[2].rpartition(".")[2]


def code_of(failure: Exception) -> str:
    """The service's error code, or the name of the SDK's own error."""
    if isinstance(failure, ClientError):
        return short_code(failure.response.get("Error", {}).get("Code") or "Unknown")
    return type(failure).__name__


def may_pass(failure: Exception) -> bool:
    """Whether sending the same call again can help: throttled, out of reach, or the service's own fault."""
    if not isinstance(failure, ClientError):
        return not isinstance(failure, NoCredentialsError)
    status = failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or status == 429 or code_of(failure) in THROTTLES


def unavailable(failure: Exception, doing: str) -> Unavailable:
    """The core's word for a failed call; ``doing`` says which, as in ``lease from queue default``."""
    throttled = isinstance(failure, ClientError)
    seconds = RETRY_THROTTLED_SECONDS if throttled else RETRY_UNREACHABLE_SECONDS
    return Unavailable(f"cannot {doing}: {code_of(failure)}", retry_after_seconds=seconds)
