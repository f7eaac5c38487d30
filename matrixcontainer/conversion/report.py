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
class ReportLine:
    """One line of the report: the object, the field, and what replaces it or why it was left out."""

    object: str
    field: str
    outcome: Outcome
    message: str


@dataclass
class Report:
    """The report lines of one object, in order and without duplicates."""

    object: str
    lines: list[ReportLine] = field(default_factory=list)

    def kept(self, path: str, message: str) -> None:
        self._add(path, Outcome.KEPT, message)

    def translated(self, path: str, message: str) -> None:
        self._add(path, Outcome.TRANSLATED, message)

    def left_out(self, path: str, message: str) -> None:
        self._add(path, Outcome.LEFT_OUT, message)

    def _add(self, path: str, outcome: Outcome, message: str) -> None:
        line = ReportLine(self.object, path, outcome, message)
        if line not in self.lines:
            self.lines.append(line)
