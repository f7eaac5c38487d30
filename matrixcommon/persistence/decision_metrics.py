"""Decision metrics: reports of each verb's outcome, reason and duration to subscribers that count them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from matrixcommon.model.errors import MatrixError
from matrixcommon.persistence.database_session import Database

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class VerbOutcome:
    """The outcome of one verb: Granted or Refused, the reason of a refusal, and the wall seconds until its commit or,
    in a group, until the next verb starts."""

    verb: str
    outcome: str
    reason: str
    seconds: float


class DecisionOwner(Protocol):
    """An object with methods that are decisions."""

    decided: list[Callable[[VerbOutcome], None]]
    records: Database


def report_outcome(action: Callable[P, R]) -> Callable[P, R]:
    """Report the outcomes of a method to its owner's `decided`, except for `validate_only` calls."""

    @wraps(action)
    def reported(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("validate_only"):
            return action(*args, **kwargs)
        owner: Any = args[0]
        started = time.perf_counter()
        try:
            found = action(*args, **kwargs)
        except MatrixError as refused:
            _notify(owner, VerbOutcome(action.__name__, "Refused", refused.reason, time.perf_counter() - started))
            raise
        granted = VerbOutcome(action.__name__, "Granted", "", time.perf_counter() - started)
        owner.records.on_commit(lambda: _notify(owner, granted))
        return found

    return reported


def _notify(owner: DecisionOwner, made: VerbOutcome) -> None:
    for hear in owner.decided:
        hear(made)
