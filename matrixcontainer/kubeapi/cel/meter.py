"""What one evaluation may still cost, counted while it runs: texts grow, and lists are made that no estimate foresaw.

A step of a loop and an item of a list cost one, ten characters cost one, as in k8s.io/apiserver (the factor for walking
over a string). Who runs out raises `OutOfBudget`, which no `||` forgets.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

CHARACTERS_OF_ONE = 10


class OutOfBudget(Exception):
    """The evaluation would cost more than it may."""


class Meter:
    """`left` units, which `charge` takes from."""

    def __init__(self, left: int) -> None:
        self.left = left


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(units: int) -> Iterator[Meter]:
    """Evaluations inside share that many units."""
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
        meter.left -= units
        if meter.left < 0:
            raise OutOfBudget


def size(value: Any) -> int:
    """What it costs to walk over a value once."""
    if isinstance(value, (str, bytes)):
        return len(value) // CHARACTERS_OF_ONE
    return len(value) if isinstance(value, (list, dict)) else 0


def paid(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, charged for walking over what it is given and over what it makes."""

    def call(*arguments: Any) -> Any:
        charge(1 + sum(map(size, arguments)))
        found = function(*arguments)
        charge(size(found))
        return found

    return call


def paid_each(items: Any) -> Iterator[Any]:
    """The items, each charged when it is reached."""
    for item in items:
        charge(1)
        yield item
