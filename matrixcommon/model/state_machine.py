"""States with their sentences, and the table of moves between them.

A state is a word with a sentence that a person can read in a status; stable ones are adjectives, passing ones end in
-ing and have a deadline after which the resource counts as stuck. The table of moves is the only place where a change
of state is allowed; the picture in a package's README is printed from it (`tests/upkeep`). A move may say who makes it;
verbs are moves that a person asks for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matrixcommon.model.errors import Conflict


@dataclass(frozen=True)
class State:
    """One state. `deadline_s` (emulated) bounds a passing state; None marks a stable one."""

    name: str
    sentence: str
    deadline_s: float | None = None


@dataclass(frozen=True)
class Verb:
    """What a person may ask of a thing: the state it goes to `after` each state in which that is allowed. `risk`: what
    force does, where it is refused without force while somebody has the thing."""

    name: str
    sentence: str
    after: Mapping[str, str]
    risk: str = ""


class StateMachine:
    """The states of one kind of thing and the moves it may make.

    `moves` maps a state to those that may follow it, or to who makes each of these moves. Staying is always allowed and
    is no move.
    """

    def __init__(
        self,
        kind: str,
        start: str,
        states: Iterable[State],
        moves: Mapping[str, Iterable[str] | Mapping[str, str]],
        verbs: Iterable[Verb] = (),
    ) -> None:
        self.kind = kind
        self.start = start
        self.states = {state.name: state for state in states}
        self.verbs = {verb.name: verb for verb in verbs}
        self.by: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Who makes a move, of those that say so."""
        found: dict[str, set[str]] = defaultdict(set)
        for before, after in moves.items():
            found[before] |= {*after}
            if isinstance(after, Mapping):
                for to, who in after.items():
                    self.by[before, to].append(who)
        for verb in self.verbs.values():
            for before, to in verb.after.items():
                found[before].add(to)
                self.by[before, to].append(f":{verb.name}")
        self.moves = {name: frozenset(found.get(name, ())) for name in self.states}
        unknown = ({start} | set(found) | {to for after in found.values() for to in after}) - set(self.states)
        if unknown:
            raise ValueError(f"{kind}: moves name unknown states {sorted(unknown)}")

    def check(self, before: str, after: str) -> str:
        """`after`, if that move is in the table; else Conflict that names the moves there are."""
        if after != before and after not in self.moves[before]:
            allowed = ", ".join(sorted(self.moves[before])) or "none"
            raise Conflict(f"{self._one} that is {before} cannot become {after}; it may become: {allowed}")
        return after

    def asked(self, verb: str, state: str) -> str:
        """The state that a verb leads to; Conflict, naming the verbs there are, where it is not for this state."""
        after = self.verbs[verb].after.get(state)
        if after is None:
            legal = ", ".join(f":{each.name}" for each in self.verbs.values() if state in each.after) or "nothing"
            raise Conflict(f"{self._one} that is {state} cannot be asked to :{verb}; it may be asked to: {legal}")
        return after

    @property
    def _one(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def stuck(self, state: str, since_s: float, now_s: float) -> bool:
        """Whether a passing state has outlived its deadline."""
        deadline_s = self.states[state].deadline_s
        return deadline_s is not None and now_s - since_s > deadline_s
