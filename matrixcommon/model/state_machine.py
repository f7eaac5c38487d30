"""States with their descriptions, and the table of transitions ("moves") between them.

A state is a word with a sentence for people to read in a status. Stable states are adjectives; transitional ones end in
-ing and have a deadline after which the resource counts as stuck. Only moves in the table are allowed; the diagram in a
package's README is generated from it (`tests/upkeep`). A move may say who makes it; verbs are moves that a user
requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matrixcommon.model.errors import Conflict


@dataclass(frozen=True)
class State:
    """One state. `deadline_s` (emulated) bounds a transitional state; None marks a stable one."""

    name: str
    sentence: str
    deadline_s: float | None = None


@dataclass(frozen=True)
class Verb:
    """A transition that a user may request. `after` maps each state in which it is allowed to the state it leads to.
    `risk`: what force does, if the verb is refused without force while the resource is in use."""

    name: str
    sentence: str
    after: Mapping[str, str]
    risk: str = ""


class StateMachine:
    """The states of one kind of resource and the moves between them.

    `moves` maps a state to those that may follow it, optionally with who makes each move. Staying in a state is always
    allowed and is not a move.
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
        """Who makes each move, where that is declared."""
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
        """Return `after` if that move is allowed. Raises Conflict that lists the allowed moves otherwise."""
        if after != before and after not in self.moves[before]:
            allowed = ", ".join(sorted(self.moves[before])) or "none"
            raise Conflict(f"{self._one} that is {before} cannot become {after}; it may become: {allowed}")
        return after

    def asked(self, verb: str, state: str) -> str:
        """Return the state that a verb leads to. Raises Conflict that lists the allowed verbs if this one is not."""
        after = self.verbs[verb].after.get(state)
        if after is None:
            legal = ", ".join(f":{each.name}" for each in self.verbs.values() if state in each.after) or "nothing"
            raise Conflict(f"{self._one} that is {state} cannot be asked to :{verb}; it may be asked to: {legal}")
        return after

    @property
    def _one(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def stuck(self, state: str, since_s: float, now_s: float) -> bool:
        """Whether a transitional state has exceeded its deadline."""
        deadline_s = self.states[state].deadline_s
        return deadline_s is not None and now_s - since_s > deadline_s
