"""The hardware as one audience sees it: the holder of each node, a letter for each NPU, and their counts.

Only nodes that changed are redrawn: of 22 supernodes a frame changes a few nodes. Unchanged parts are the same objects
as in the frame before, which `difference` skips.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from matrixcommon.api.authorization import EVERY_PROJECT, REDACTED_NAME
from services.console.live.collector import Collector
from services.console.live.hardware import (
    ALLOCATED,
    CHANGING,
    DEGRADED,
    FAULTY,
    FREE,
    OUT,
    SPARE,
    Holding,
    NodeState,
    letters,
)

LETTER_WORDS = {FREE: "free", ALLOCATED: "held", SPARE: "spare", CHANGING: "changing", OUT: "out", DEGRADED: "degraded"}
LETTER_WORDS[FAULTY] = "faulty"

Nodes = dict[tuple[str, str], NodeState]
Changed = list[tuple[tuple[str, str], NodeState]]
Part = tuple[str, tuple[int, ...] | None, bool]
"""A part of a node: its holder, its NPUs (None: all), and whether it is a spare."""


def may_see(audience: str, project: str) -> bool:
    return audience in (EVERY_PROJECT, project)


@dataclass(slots=True)
class _Drawn:
    """A drawn node, and the state it was drawn from."""

    state: NodeState
    parts: list[Part]
    letters: str


class Drawing:
    """The drawing for one audience. `supernodes` by name: cabinets with their nodes, a letter for each NPU, and holders
    by node (one name, or one per NPU if it is shared). `counts`: numbers of NPUs by the word of their letter."""

    def __init__(self, collector: Collector, audience: str) -> None:
        self._collector, self._audience = collector, audience
        self._drawn_versions: tuple[int, int] | None = None
        """The drawn versions of nodes and allocations."""
        self._holders: dict[str, list[Part]] = {}
        self._drawn: dict[tuple[str, str], _Drawn] = {}
        self._tally = Counter[str]()
        self.supernodes: dict[str, Any] = {}

    @property
    def counts(self) -> dict[str, int]:
        return {"npus": self._tally.total(), **{word: self._tally[letter] for letter, word in LETTER_WORDS.items()}}

    def refresh(self) -> None:
        """Redraw what has changed."""
        nodes = self._collector.nodes.items
        before, self._drawn_versions = (
            self._drawn_versions,
            (self._collector.nodes.version, self._collector.allocations.version),
        )
        if before == self._drawn_versions:
            return
        changed = self._changed_nodes(nodes)
        if before is None or before[1] != self._drawn_versions[1]:
            self._holders = _holders(self._collector, self._audience)
            changed += self._nodes_with_changed_holders(nodes)
        if len(nodes) != len(self._drawn) or any(self._has_moved(key, state) for key, state in changed):
            self._reset(nodes)
            changed = [*nodes.items()]
        redrawn: dict[str, Any] = {}
        for key, state in changed:
            self._draw(key, state, self._holders.get(key[1], []), redrawn)
        if redrawn:
            self.supernodes = self.supernodes | redrawn

    def _changed_nodes(self, nodes: Nodes) -> Changed:
        """Nodes whose state has changed since they were drawn, or that were not drawn."""
        drawn = self._drawn
        return [
            each for each in nodes.items() if (previous := drawn.get(each[0])) is None or previous.state is not each[1]
        ]

    def _nodes_with_changed_holders(self, nodes: Nodes) -> Changed:
        """Nodes whose holders have changed since they were drawn."""
        drawn, holders = self._drawn, self._holders
        return [
            each
            for each in nodes.items()
            if (previous := drawn.get(each[0])) is not None and previous.parts != holders.get(each[0][1], [])
        ]

    def _has_moved(self, key: tuple[str, str], state: NodeState) -> bool:
        """Whether the node is not drawn, or in another place."""
        drawn = self._drawn.get(key)
        return drawn is None or (drawn.state.supernode, drawn.state.cabinet) != (state.supernode, state.cabinet)

    def _reset(self, nodes: Nodes) -> None:
        """Start over: cabinets and their nodes in order of name, nothing drawn."""
        self._drawn.clear()
        self._tally.clear()
        self.supernodes = {}
        for (_, node), state in sorted(nodes.items()):
            shown = self.supernodes.setdefault(state.supernode, {"cabinets": {}, "states": {}, "holders": {}})
            shown["cabinets"].setdefault(state.cabinet, []).append(node)
            shown["states"][node] = ""

    def _draw(self, key: tuple[str, str], state: NodeState, parts: list[Part], redrawn: dict[str, Any]) -> None:
        """Draw one node into a copy of its supernode, so that the frame before stays as it is."""
        node, before = key[1], self._drawn.get(key)
        shown = redrawn.get(state.supernode)
        if shown is None:
            old = self.supernodes[state.supernode]
            shown = redrawn[state.supernode] = {
                "cabinets": old["cabinets"],
                "states": old["states"].copy(),
                "holders": old["holders"].copy(),
            }
        drawn = _letters(state, parts)
        if before is not None:
            self._tally.subtract(before.letters)
        self._tally.update(drawn)
        self._drawn[key] = _Drawn(state, parts, drawn)
        shown["states"][node] = drawn
        if parts:
            shown["holders"][node] = _holder(parts, state.npus)
        else:
            shown["holders"].pop(node, None)


def _letters(state: NodeState, parts: list[Part]) -> str:
    each = list(letters(state, any(spare for _, _, spare in parts)))
    for _, npus, _ in parts:
        for number in npus or ():
            if number < state.npus and each[number] == FREE:
                each[number] = ALLOCATED
    return "".join(each)


def _holders(collector: Collector, audience: str) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = defaultdict(list)
    allocations: dict[tuple[str, str], Holding] = collector.allocations.items
    for (project, name), allocation in allocations.items():
        shown = f"{project}/{name}" if may_see(audience, project) else REDACTED_NAME
        for node, npus in allocation.nodes:
            found[node].append((shown, npus, node in allocation.spares))
    return found


def _holder(parts: list[Part], npus: int) -> str | list[str]:
    if any(part is None for _, part, _ in parts):
        return next(name for name, part, _ in parts if part is None)
    each = [""] * npus
    for name, part, _ in parts:
        for number in part or ():
            if number < npus:
                each[number] = name
    return each
