"""States with their sentences, and the table of moves between them.

A state is a word with a sentence that a person can read in a status; stable ones are adjectives, passing ones end in
-ing and have a deadline after which the resource counts as stuck. The table of moves is the only place where a change
of state is allowed; the picture in a package's README is printed from it (`tests/upkeep`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matrixcommon.model.errors import Conflict


@dataclass(frozen=True)
class State:
    """One state. `deadline_s` (emulated) bounds a passing state; None marks a stable one."""

    name: str
    sentence: str
    deadline_s: float | None = None


class StateMachine:
    """The states of one kind of thing and the moves it may make.

    `moves` maps a state to those that may follow it. Staying is always allowed and is no move.
    """

    def __init__(self, kind: str, start: str, states: Iterable[State], moves: Mapping[str, Iterable[str]]) -> None:
        self.kind = kind
        self.start = start
        self.states = {state.name: state for state in states}
        self.moves = {name: frozenset(moves.get(name, ())) for name in self.states}
        unknown = ({start} | set(moves) | {to for after in self.moves.values() for to in after}) - set(self.states)
        if unknown:
            raise ValueError(f"{kind}: moves name unknown states {sorted(unknown)}")

    def check(self, before: str, after: str) -> str:
        """`after`, if that move is in the table; else Conflict that names the moves there are."""
        if after != before and after not in self.moves[before]:
            allowed = ", ".join(sorted(self.moves[before])) or "none"
            raise Conflict(f"a {self.kind} that is {before} cannot become {after}; it may become: {allowed}")
        return after

    def stuck(self, state: str, since_s: float, now_s: float) -> bool:
        """Whether a passing state has outlived its deadline."""
        deadline_s = self.states[state].deadline_s
        return deadline_s is not None and now_s - since_s > deadline_s
