"""Report of a conversion, field by field: kept, translated, or left out because there is no counterpart."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a field or of a whole object."""

    KEPT = "kept"
    TRANSLATED = "translated"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Account:
    """One line of the report: the object, the field, and what replaces it or why it was left out."""

    object: str
    field: str
    outcome: Outcome
    says: str


@dataclass
class Accounts:
    """The report lines of one object, in order and without duplicates."""

    object: str
    lines: list[Account] = field(default_factory=list)

    def kept(self, path: str, says: str) -> None:
        self._add(path, Outcome.KEPT, says)

    def translated(self, path: str, says: str) -> None:
        self._add(path, Outcome.TRANSLATED, says)

    def left_out(self, path: str, says: str) -> None:
        self._add(path, Outcome.LEFT_OUT, says)

    def _add(self, path: str, outcome: Outcome, says: str) -> None:
        line = Account(self.object, path, outcome, says)
        if line not in self.lines:
            self.lines.append(line)
