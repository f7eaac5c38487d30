"""Each figure we publish: one module, its method, its goal or its peer.

A module here has `measure() -> Iterable[Figure]`; `python -m benchmarks [name ...]` runs them and prints one line each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure. `goal_most` is the most it may be (None: no goal); `method` says how it was taken."""

    name: str
    value: float
    unit: str
    method: str
    goal_most: float | None = None

    @property
    def verdict(self) -> str:
        if self.goal_most is None:
            return ""
        return "met" if self.value <= self.goal_most else "MISSED"

    def line(self) -> str:
        goal = "" if self.goal_most is None else f"goal at most {self.goal_most:g} {self.unit}: {self.verdict}"
        return f"{self.name:<52} {self.value:>9.2f} {self.unit:<5} {goal:<32} {self.method}"
