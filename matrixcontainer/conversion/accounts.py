"""What became of a manifest, field by field: kept as it is, translated, or left out for want of a counterpart."""

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
    """One line: of which object, which field, and what is there instead or why there is nothing."""

    object: str
    field: str
    outcome: Outcome
    says: str


@dataclass
class Accounts:
    """The lines of one object as they are found, each once."""

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
