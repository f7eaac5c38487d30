"""Decisions are told to whoever counts them: which verb, how it came out and why, and how long it took."""

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
    """One verb asked for: Granted or Refused, the reason of a refusal, and seconds of the wall up to its commit; in a
    group, up to the next verb's turn."""

    verb: str
    outcome: str
    reason: str
    seconds: float


class Decides(Protocol):
    """Who has verbs that are decisions."""

    decided: list[Callable[[VerbOutcome], None]]
    records: Database


def decision(action: Callable[P, R]) -> Callable[P, R]:
    """A method whose outcomes are told to its owner's `decided`; what is only tried (`validate_only`) is not."""

    @wraps(action)
    def reported(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("validate_only"):
            return action(*args, **kwargs)
        owner: Any = args[0]
        started = time.perf_counter()
        try:
            found = action(*args, **kwargs)
        except MatrixError as refused:
            _tell(owner, VerbOutcome(action.__name__, "Refused", refused.reason, time.perf_counter() - started))
            raise
        granted = VerbOutcome(action.__name__, "Granted", "", time.perf_counter() - started)
        owner.records.on_commit(lambda: _tell(owner, granted))
        return found

    return reported


def _tell(owner: Decides, made: VerbOutcome) -> None:
    for hear in owner.decided:
        hear(made)
