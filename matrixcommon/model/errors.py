"""What can be refused, as a tree of reasons.

A reason is a PascalCase noun shared by errors, conditions and events. An error is raised where the reason is known;
it becomes an RFC 9457 problem document once, at the edge, and an error of the same class again in the caller.

    MatrixError
    ├── Malformed               the request cannot be read                          400
    ├── Unauthorized            no token, or one we did not issue                   401
    ├── Forbidden               the token's role may not do this                    403
    ├── NotFound                                                                    404
    ├── MethodNotAllowed        this may not be asked of what is at this path       405
    ├── Conflict                an illegal move, or the name means something else   409
    │   ├── InsufficientCapacity    does not fit; `blocking` says what stands in the way
    │   │   └── ExceedsDomain           nor would it if all of the cabinet or supernode it is to lie in were free
    │   ├── BelowFloor              an instance has fewer members left than its floor, and no others are to be had
    │   ├── InsufficientBandwidth   a link would carry more floors than it has
    │   ├── Preempted               somebody of higher priority took the place
    │   ├── QuotaExceeded           the project may not hold so much
    │   ├── Cancelled               somebody cancelled the operation
    │   ├── Abandoned               somebody gave the operation up where it stood
    │   ├── StaleTopology           made on a topology that has changed since
    │   ├── StaleGeneration         an older spec than the one we hold
    │   └── StaleLeader             another replica leads since
    ├── PreconditionFailed      If-Match names another version                      412
    ├── InvalidField            semantically wrong; `field` is the path             422
    ├── TooLarge                the body is over the limit                          413
    ├── Gone                    a watch asks for history we no longer keep          410
    ├── TooManyRequests         come again; `retry_after_s` says when               429
    │   ├── RateLimitExceeded       more than the project or key may ask in a minute, or at once
    │   ├── UsageQuotaExceeded      more than it may use in a day
    │   └── Overloaded              it would be served too late to meet the objective
    ├── NotYetSupported         in the contract, not in this version                501
    └── Unavailable             try again; `retry_after_s` says when                503
"""

from __future__ import annotations

from typing import Any, ClassVar


class MatrixError(Exception):
    """Base of all refusals. `blocking` lists what stands in the way, per domain, plane or link."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    final: ClassVar[bool] = False
    """Whether the same request will be refused whenever it is sent."""

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
        """What its status asks for in the head of the answer (RFC 9110): when trying again makes sense, in seconds of
        the wall."""
        return {"Retry-After": str(max(1, round(self.retry_after_s or 1)))} if self.retryable else {}

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 document, without what only the edge knows (instance, requestId)."""
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
        """How to say who asks."""
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
    """Ours to repair: the caller did nothing wrong. Retryable, since a restart may have repaired it."""

    status = 500
    retryable = True


def _tree(root: type[MatrixError]) -> list[type[MatrixError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


def from_problem(document: dict[str, Any], status: int) -> MatrixError:
    """The error a problem document stands for: by its reason, else by its HTTP status."""
    known = {kind.__name__: kind for kind in _tree(MatrixError)}
    by_status = {kind.status: kind for kind in reversed(_tree(MatrixError)[1:])}
    fallback = Unavailable if status in (429, 502, 504) else by_status.get(status, InternalError)
    kind = known.get(str(document.get("reason")), fallback)
    return kind(
        str(document.get("detail") or document.get("title") or f"HTTP {status}"),
        field=document.get("field"),
        blocking=document.get("blocking"),
    )
