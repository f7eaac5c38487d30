"""The published figures: a module for each topic, with its method and its goal or comparison.

A module has `measure() -> Iterable[Figure]`; `python -m benchmarks [name ...]` runs modules and prints a line per
figure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure. `goal_max` and `goal_min` are its upper and lower goals (None: no goal); `method`
    describes the measurement."""

    name: str
    value: float
    unit: str
    method: str
    goal_max: float | None = None
    goal_min: float | None = None

    @property
    def verdict(self) -> str:
        if self.goal_max is None and self.goal_min is None:
            return ""
        within = self.goal_max is None or self.value <= self.goal_max
        return "met" if within and (self.goal_min is None or self.value >= self.goal_min) else "MISSED"

    def line(self) -> str:
        bounds = (("at most", self.goal_max), ("at least", self.goal_min))
        asked = ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        goal = f"goal {asked} {self.unit}: {self.verdict}" if asked else ""
        return f"{self.name:<52} {self.value:>9.2f} {self.unit:<5} {goal:<32} {self.method}"
