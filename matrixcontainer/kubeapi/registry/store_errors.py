"""Database failures as API errors."""

from __future__ import annotations

from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.storage.objects import StorageError


def storage_api_error(failure: StorageError) -> ApiError:
    """The API error for a database failure, with a code that tells a client whether a retry may help."""
    code, reason = {
        "Full": (507, "InsufficientStorage"),
        "Locked": (503, "ServiceUnavailable"),
        "Refused": (503, "ServiceUnavailable"),
    }.get(failure.kind, (500, "InternalError"))
    refusal = ApiError(code, reason, f"the database: {failure.text}")
    if code == 503:
        refusal.details = {"retryAfterSeconds": 1}
        refusal.headers = {"Retry-After": "1"}
    return refusal
