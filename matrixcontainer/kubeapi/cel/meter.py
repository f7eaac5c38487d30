"""Cost metering of CEL evaluations while they run: strings grow and lists are built that no estimate foresees.

A loop step and a list item cost one, as do ten characters, as in k8s.io/apiserver (its string traversal factor).
Exceeding the budget raises `BudgetExceeded`, which `||` and the like do not suppress.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

CHARACTERS_PER_UNIT = 10


class BudgetExceeded(Exception):
    """The evaluation exceeds its budget."""


class Meter:
    """The remaining budget, in units, from which `charge` subtracts."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(units: int) -> Iterator[Meter]:
    """Context in which all evaluations share a budget of `units`."""
    before = _current.set(Meter(units))
    try:
        found = _current.get()
        assert found is not None
        yield found
    finally:
        _current.reset(before)


def charge(units: int) -> None:
    meter = _current.get()
    if meter is not None:
        meter.remaining -= units
        if meter.remaining < 0:
            raise BudgetExceeded


def size(value: Any) -> int:
    """Cost of traversing a value once."""
    if isinstance(value, (str, bytes)):
        return len(value) // CHARACTERS_PER_UNIT
    return len(value) if isinstance(value, (list, dict)) else 0


def charged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that each call is charged for traversing its arguments and its result."""

    def call(*arguments: Any) -> Any:
        charge(1 + sum(map(size, arguments)))
        found = function(*arguments)
        charge(size(found))
        return found

    return call


def charged_items(items: Any) -> Iterator[Any]:
    """Iterate over the items, charging for each."""
    for item in items:
        charge(1)
        yield item
