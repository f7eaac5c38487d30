"""What may be drawn for an action, said once: as a strategy for Hypothesis, and out of a `Random` for who draws by seed.

Of Hypothesis's strategies these are as many as the actions need, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Drawn:
    """`draw(random)` is one of those that `strategy` draws."""

    strategy: st.SearchStrategy[Any]
    draw: Callable[[Random], Any]


def just(value: Any) -> Drawn:
    return Drawn(st.just(value), lambda random: value)


def sampled_from(values: Sequence[Any]) -> Drawn:
    return Drawn(st.sampled_from(values), lambda random: random.choice(values))


def integers(least: int, most: int) -> Drawn:
    return Drawn(st.integers(least, most), lambda random: random.randint(least, most))


def booleans() -> Drawn:
    return Drawn(st.booleans(), lambda random: random.random() < 0.5)


def one_of(*some: Drawn) -> Drawn:
    return Drawn(st.one_of(*(each.strategy for each in some)), lambda random: random.choice(some).draw(random))


def lists(of: Drawn, *, min_size: int = 0, max_size: int = 3) -> Drawn:
    strategy = st.lists(of.strategy, min_size=min_size, max_size=max_size)
    return Drawn(strategy, lambda random: [of.draw(random) for _ in range(random.randint(min_size, max_size))])


def fixed_dictionaries(always: Mapping[str, Drawn], *, optional: Mapping[str, Drawn] | None = None) -> Drawn:
    maybe = optional or {}
    strategy = st.fixed_dictionaries(
        {name: each.strategy for name, each in always.items()},
        optional={name: each.strategy for name, each in maybe.items()},
    )

    def draw(random: Random) -> dict[str, Any]:
        drawn = {name: each.draw(random) for name, each in always.items()}
        return drawn | {name: each.draw(random) for name, each in maybe.items() if random.random() < 0.4}

    return Drawn(strategy, draw)
