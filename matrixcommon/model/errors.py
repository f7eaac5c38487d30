"""The errors that requests are refused with, as a tree of reasons.

A reason is a PascalCase word shared by errors, conditions and events. An error is raised where the reason is known; the
HTTP edge turns it into an RFC 9457 problem document, and the client turns that into an error of the same class again.

    MatrixError
    ├── Malformed               the request cannot be read                          400
    ├── Unauthorized            no token, or one that was not issued here           401
    ├── Forbidden               the token's role may not do this                    403
    ├── NotFound                                                                    404
    ├── MethodNotAllowed        the path does not support this method               405
    ├── Conflict                an illegal transition, or the name has another spec 409
    │   ├── InsufficientCapacity    does not fit; `blocking` lists what is in the way
    │   │   └── ExceedsDomain           would not fit even if the whole cabinet or supernode it must be in were free
    │   ├── BelowFloor              an instance has fewer members left than its floor, and none can be added
    │   ├── InsufficientBandwidth   the floors on a link would exceed its capacity
    │   ├── Preempted               a higher priority took the place
    │   ├── QuotaExceeded           more than the project may hold
    │   ├── Cancelled               the operation was cancelled
    │   ├── Abandoned               the operation was given up without being undone
    │   ├── StaleTopology           computed for a topology that has changed since
    │   ├── StalePlan               computed for a state that has changed since
    │   ├── StaleGeneration         an older spec than the one already held
    │   └── StaleLeader             another replica has become leader since
    ├── PreconditionFailed      If-Match names another version                      412
    ├── InvalidField            semantically wrong; `field` is the path             422
    ├── TooLarge                the body exceeds the limit                          413
    ├── UnsupportedEncoding     the body is compressed                              415
    ├── Gone                    a watch asks for history that is no longer kept     410
    ├── TooManyRequests         retry later; `retry_after_s` says when              429
    │   ├── RateLimitExceeded       more requests per minute, or at once, than the project or key may send
    │   ├── UsageQuotaExceeded      more usage per day than it may have
    │   └── Overloaded              would be served too late to meet the objective
    ├── NotYetSupported         in the contract, but not in this version            501
    ├── Unavailable             retry; `retry_after_s` says when                    503
    └── InternalError           a defect of the service                             500
"""

from __future__ import annotations

from typing import Any, ClassVar


class MatrixError(Exception):
    """Base of all refusals. `blocking` lists what is in the way, by domain, plane or link."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    final: ClassVar[bool] = False
    """Whether the same request would be refused at any time."""

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        blocking: list[dict[str, Any]] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.blocking = blocking or []
        self.retry_after_s = retry_after_s

    @property
    def reason(self) -> str:
        return type(self).__name__

    @property
    def headers(self) -> dict[str, str]:
        """The response headers that its status calls for (RFC 9110): Retry-After, in wall seconds, where a retry makes
        sense."""
        return {"Retry-After": str(max(1, round(self.retry_after_s or 1)))} if self.retryable else {}

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 document, without the members that only the HTTP edge knows (instance, requestId)."""
        document: dict[str, Any] = {
            "type": f"urn:cloudmatrix:problem:{self.reason}",
            "title": self.reason,
            "status": self.status,
            "reason": self.reason,
            "detail": self.message,
        }
        if self.field is not None:
            document["field"] = self.field
        if self.blocking:
            document["blocking"] = self.blocking
        return document


class Malformed(MatrixError):
    status = 400
    final = True


class MethodNotAllowed(MatrixError):
    status = 405
    final = True


class Unauthorized(MatrixError):
    status = 401

    @property
    def headers(self) -> dict[str, str]:
        """The authentication scheme to use."""
        return {"WWW-Authenticate": 'Bearer realm="cloudmatrix"'}


class Forbidden(MatrixError):
    status = 403


class NotFound(MatrixError):
    status = 404


class Conflict(MatrixError):
    status = 409


class InsufficientCapacity(Conflict):
    pass


class ExceedsDomain(InsufficientCapacity):
    final = True


class BelowFloor(Conflict):
    pass


class InsufficientBandwidth(Conflict):
    pass


class Preempted(Conflict):
    pass


class QuotaExceeded(Conflict):
    pass


class Cancelled(Conflict):
    pass


class Abandoned(Conflict):
    pass


class StaleTopology(Conflict):
    pass


class StalePlan(Conflict):
    pass


class StaleGeneration(Conflict):
    pass


class StaleLeader(Conflict):
    pass


class Gone(MatrixError):
    status = 410


class PreconditionFailed(MatrixError):
    status = 412


class TooLarge(MatrixError):
    status = 413
    final = True


class UnsupportedEncoding(MatrixError):
    status = 415
    final = True

    @property
    def headers(self) -> dict[str, str]:
        """Accept-Encoding says what is accepted (RFC 9110, 15.5.16)."""
        return {"Accept-Encoding": "identity"}


class InvalidField(MatrixError):
    status = 422
    final = True


class TooManyRequests(MatrixError):
    status = 429
    retryable = True


class RateLimitExceeded(TooManyRequests):
    pass


class UsageQuotaExceeded(TooManyRequests):
    pass


class Overloaded(TooManyRequests):
    pass


class NotYetSupported(MatrixError):
    status = 501


class Unavailable(MatrixError):
    status = 503
    retryable = True


class InternalError(MatrixError):
    """A defect of the service; the caller did nothing wrong. Retryable, since a restart may fix it."""

    status = 500
    retryable = True


def _subclasses(root: type[MatrixError]) -> list[type[MatrixError]]:
    return [root, *(each for child in root.__subclasses__() for each in _subclasses(child))]


def from_problem(document: dict[str, Any], status: int) -> MatrixError:
    """The error that a problem document represents: chosen by its reason, else by its HTTP status."""
    known = {kind.__name__: kind for kind in _subclasses(MatrixError)}
    by_status = {kind.status: kind for kind in reversed(_subclasses(MatrixError)[1:])}
    fallback = Unavailable if status in (429, 502, 504) else by_status.get(status, InternalError)
    kind = known.get(str(document.get("reason")), fallback)
    return kind(
        str(document.get("detail") or document.get("title") or f"HTTP {status}"),
        field=document.get("field"),
        blocking=document.get("blocking"),
    )
