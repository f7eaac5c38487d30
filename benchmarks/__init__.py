"""The published figures: a module for each topic, with its method and its goal or comparison.

A module has `measure() -> Iterable[Figure]`; `python -m benchmarks [name ...]` runs modules and prints a line per
figure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure. `goal_most` and `goal_least` are its upper and lower goals (None: no goal); `method`
    describes the measurement."""

    name: str
    value: float
    unit: str
    method: str
    goal_most: float | None = None
    goal_least: float | None = None

    @property
    def verdict(self) -> str:
        if self.goal_most is None and self.goal_least is None:
            return ""
        within = self.goal_most is None or self.value <= self.goal_most
        return "met" if within and (self.goal_least is None or self.value >= self.goal_least) else "MISSED"

    def line(self) -> str:
        bounds = (("at most", self.goal_most), ("at least", self.goal_least))
        asked = ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        goal = f"goal {asked} {self.unit}: {self.verdict}" if asked else ""
        return f"{self.name:<52} {self.value:>9.2f} {self.unit:<5} {goal:<32} {self.method}"
