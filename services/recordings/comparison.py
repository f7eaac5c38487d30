"""Are these the same events? The first that differs, if not.

`exact` compares every change with everything in it. `by_object` is for stacks that share a machine with others: it
compares, for each instance, allocation, slice and deployment, the states that it went through, and leaves out moments,
what happened between different objects, which nodes were chosen, and nodes themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from services.recordings.recording import Event

COMPARED = ("instance", "allocation", "slice", "deployment")
GONE = "(gone)"


@dataclass(frozen=True)
class Difference:
    """What was recorded, and what came instead; None where one of them had ended."""

    recorded: str | None
    replayed: str | None

    def __str__(self) -> str:
        return f"recorded: {self.recorded or 'nothing more'}\nreplayed: {self.replayed or 'nothing more'}"


def exact(recorded: Sequence[Event], replayed: Sequence[Event]) -> Difference | None:
    """The first change of the first service that is not as it was."""
    for before, now in zip_longest(recorded, replayed):
        if before != now:
            return Difference(_text(before, now), _text(now, before))
    return None


def _text(event: Event | None, other: Event | None) -> str | None:
    """A change, with the fields in which it is not as the other."""
    if event is None:
        return None
    text = f"{event.service} {event.revision}: {event.type} {event.kind} {event.name}"
    if other is None or (event.kind, event.name) != (other.kind, other.name):
        return text
    mine, theirs = json.loads(event.body or "{}"), json.loads(other.body or "{}")
    differing = {key: value for key, value in mine.items() if theirs.get(key) != value}
    return f"{text} {json.dumps(differing, sort_keys=True)}"


def by_object(recorded: Iterable[Event], replayed: Iterable[Event]) -> Difference | None:
    """The first object, by name, whose states are not what they were."""
    before, now = _states(recorded), _states(replayed)
    return _first_other(before, now, sorted(before.keys() | now.keys()))


def contradiction(recorded: Iterable[Event], replayed: Iterable[Event]) -> Difference | None:
    """The same of what has come so far: the first object that went another way than its recording began."""
    now = _states(replayed)
    before = {key: states[: len(now.get(key, ()))] for key, states in _states(recorded).items()}
    return _first_other(before, now, now)


States = dict[tuple[str, str], list[str]]
"""By kind and name of an object, the states it went through."""


def _first_other(before: States, now: States, keys: Iterable[tuple[str, str]]) -> Difference | None:
    for key in keys:
        for step, (was, came) in enumerate(zip_longest(before.get(key, []), now.get(key, []))):
            if was != came:
                text = f"{key[0]} {key[1]}, state {step + 1}"
                return Difference(was and f"{text}: {was}", came and f"{text}: {came}")
    return None


def _states(events: Iterable[Event]) -> States:
    """Each object's states, one after the other, none twice in a row."""
    found: States = {}
    for event in events:
        if event.kind not in COMPARED:
            continue
        state = GONE if event.type == "DELETED" else str(json.loads(event.body).get("state", ""))
        states = found.setdefault((event.kind, event.name), [])
        if not states or states[-1] != state:
            states.append(state)
    return found
