"""Compare recorded events with replayed ones, and find the first difference.

`compare_exactly` compares every change completely. `compare_states` is for stacks in wall time on a busy host: it
compares, for each instance, allocation, slice and deployment, the sequence of its states, and ignores times, the order
of events of different objects, which nodes were chosen, and nodes themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from services.recordings.recording import Event

COMPARED_KINDS = ("instance", "allocation", "slice", "deployment")
GONE = "(gone)"


@dataclass(frozen=True)
class Difference:
    """What was recorded, and what came instead; None if one of them has ended."""

    recorded: str | None
    replayed: str | None

    def __str__(self) -> str:
        return f"recorded: {self.recorded or 'no further event'}\nreplayed: {self.replayed or 'no further event'}"


def compare_exactly(recorded: Sequence[Event], replayed: Sequence[Event]) -> Difference | None:
    """The first change that differs."""
    for before, now in zip_longest(recorded, replayed):
        if before != now:
            return Difference(_text(before, now), _text(now, before))
    return None


def _text(event: Event | None, other: Event | None) -> str | None:
    """A change as text, with the fields in which it differs from the other."""
    if event is None:
        return None
    text = f"{event.service} {event.revision}: {event.type} {event.kind} {event.name}"
    if other is None or (event.kind, event.name) != (other.kind, other.name):
        return text
    mine, theirs = json.loads(event.body or "{}"), json.loads(other.body or "{}")
    differing = {key: value for key, value in mine.items() if theirs.get(key) != value}
    return f"{text} {json.dumps(differing, sort_keys=True)}"


def compare_states(recorded: Iterable[Event], replayed: Iterable[Event]) -> Difference | None:
    """The first object, by kind and name, whose sequence of states differs."""
    before, now = _states(recorded), _states(replayed)
    return _first_difference(before, now, sorted(before.keys() | now.keys()))


def first_divergence(recorded: Iterable[Event], replayed: Iterable[Event]) -> Difference | None:
    """The same for a replay in progress: the first object whose states so far are not a prefix of the recorded ones."""
    now = _states(replayed)
    before = {key: states[: len(now.get(key, ()))] for key, states in _states(recorded).items()}
    return _first_difference(before, now, now)


States = dict[tuple[str, str], list[str]]
"""The sequence of states by kind and name of the object."""


def _first_difference(before: States, now: States, keys: Iterable[tuple[str, str]]) -> Difference | None:
    for key in keys:
        for step, (was, came) in enumerate(zip_longest(before.get(key, []), now.get(key, []))):
            if was != came:
                text = f"{key[0]} {key[1]}, state {step + 1}"
                return Difference(was and f"{text}: {was}", came and f"{text}: {came}")
    return None


def _states(events: Iterable[Event]) -> States:
    """The sequence of each object's states, without repetitions."""
    found: States = {}
    for event in events:
        if event.kind not in COMPARED_KINDS:
            continue
        state = GONE if event.type == "DELETED" else str(json.loads(event.body).get("state", ""))
        states = found.setdefault((event.kind, event.name), [])
        if not states or states[-1] != state:
            states.append(state)
    return found
