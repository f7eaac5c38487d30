"""What may happen in a life, as a table of actions: each a function of the life and of what is drawn for it.

Names are few, so that users stand in one another's way and come back to what is going or has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.simulation.drawing import Drawn, integers
from tests.simulation.rest_life import Life

ANY = integers(0, 99)
"""Which of those there are, counted round."""

Action = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Happening:
    """An action with what was drawn for it."""

    action: Action
    drawn: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.action.__name__}({', '.join(f'{name}={value!r}' for name, value in self.drawn.items())})"

    def on(self, life: Life) -> Coroutine[Any, Any, Any]:
        return self.action(life, **self.drawn)


ACTIONS: dict[Action, st.SearchStrategy[Happening]] = {}
DRAWN: dict[Action, dict[str, Drawn]] = {}


def action(**drawn: Drawn) -> Callable[[Action], Action]:
    """One of the things that may happen. Not rules each: of many rules Hypothesis leaves out half in every life."""

    def noted(function: Action) -> Action:
        strategies = {name: each.strategy for name, each in drawn.items()}
        ACTIONS[function] = st.builds(Happening, st.just(function), st.fixed_dictionaries(strategies))
        DRAWN[function] = drawn
        return function

    return noted


def of(function: Action) -> st.SearchStrategy[Happening]:
    """That action, with whatever it is drawn from."""
    return ACTIONS[function]


def drawn_by(random: Random, function: Action) -> Happening:
    """That action, with what this stream of chance has for it."""
    return Happening(function, {name: each.draw(random) for name, each in DRAWN[function].items()})


UNSHOWN = "unshown"
"""What is asked for where nothing is there to be picked; what never exists has another name."""


def pick(life: Life, collection: str, which: int) -> tuple[str, str]:
    """Project and name of one of those that were shown last; of `UNSHOWN`, which a PUT may make, where there was none."""
    items = life.lists[collection] or [{"project": "default", "name": UNSHOWN}]
    return items[which % len(items)]["project"], items[which % len(items)]["name"]
