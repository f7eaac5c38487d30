"""A small exact simplex: maximize c.x with A.x <= b and x >= 0, in Fractions.

Bland's rule prevents cycling. Negative bounds are handled by a first phase with one auxiliary variable. It also returns
the dual prices of the rows, which `splitting.py` needs. The tableau is dense: hundreds of variables, not thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Row = list[Fraction]


class Infeasible(ValueError):
    """No x satisfies the constraints."""


class Unbounded(ValueError):
    """The objective is unbounded."""


def maximize(objective: Sequence[Fraction], rows: Sequence[Row], bounds: Sequence[Fraction]) -> tuple[Fraction, Row]:
    """The maximum of the objective, and the price of each row: how much the maximum grows per unit of its bound."""
    tableau = _Tableau(rows, bounds, len(objective))
    if min(bounds, default=Fraction(0)) < 0:
        tableau.find_feasible()
    tableau.set_objective([*objective, Fraction(0)])
    tableau.optimize()
    first_slack = len(objective) + 1
    prices = [-tableau.cost[first_slack + row] for row in range(len(rows))]
    return -tableau.cost[-1], prices


class _Tableau:
    """Columns: variables, one auxiliary, a slack per row, the bound. `basis[r]`: the basic variable of row r."""

    def __init__(self, rows: Sequence[Row], bounds: Sequence[Fraction], variables: int) -> None:
        count = len(rows)
        self.auxiliary = variables
        self.width = variables + 1 + count
        self.rows: list[Row] = []
        for number, (row, bound) in enumerate(zip(rows, bounds, strict=True)):
            slacks = [Fraction(int(other == number)) for other in range(count)]
            self.rows.append([*row, Fraction(0), *slacks, bound])
        self.basis = [variables + 1 + number for number in range(count)]
        self.cost: Row = []

    def find_feasible(self) -> None:
        """Relax every row by the auxiliary variable, then drive that to zero."""
        for row in self.rows:
            row[self.auxiliary] = Fraction(-1)
        self.cost = [Fraction(0)] * (self.width + 1)
        self.cost[self.auxiliary] = Fraction(-1)
        worst = min(range(len(self.rows)), key=lambda r: self.rows[r][-1])
        self._pivot(worst, self.auxiliary)
        self.optimize()
        if self.cost[-1] != 0:
            raise Infeasible("no solution keeps every bound")
        if self.auxiliary in self.basis:
            at = self.basis.index(self.auxiliary)
            column = next(c for c in range(self.width) if c != self.auxiliary and self.rows[at][c] != 0)
            self._pivot(at, column)
        for row in self.rows:
            row[self.auxiliary] = Fraction(0)

    def set_objective(self, objective: Sequence[Fraction]) -> None:
        """Set the objective, in terms of the nonbasic variables."""
        self.cost = [*objective, *[Fraction(0)] * (self.width + 1 - len(objective))]
        for row, variable in zip(self.rows, self.basis, strict=True):
            if factor := self.cost[variable]:
                self.cost = [c - factor * r if r else c for c, r in zip(self.cost, row, strict=True)]

    def optimize(self) -> None:
        while (column := next((c for c in range(self.width) if self.cost[c] > 0), None)) is not None:
            best: tuple[Fraction, int, int] | None = None
            for number, row in enumerate(self.rows):
                if row[column] > 0:
                    entry = (row[-1] / row[column], self.basis[number], number)
                    best = entry if best is None else min(best, entry)
            if best is None:
                raise Unbounded("the objective has no largest value")
            self._pivot(best[2], column)

    def _pivot(self, at: int, column: int) -> None:
        pivot = self.rows[at][column]
        solved = self.rows[at] = [value / pivot if value else value for value in self.rows[at]]
        for number, row in enumerate(self.rows):
            if number != at and (factor := row[column]):
                self.rows[number] = [a - factor * b if b else a for a, b in zip(row, solved, strict=True)]
        if self.cost and (factor := self.cost[column]):
            self.cost = [a - factor * b if b else a for a, b in zip(self.cost, solved, strict=True)]
        self.basis[at] = column
