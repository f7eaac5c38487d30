"""A Snapshot: every node's place, health and holder at one moment, for a decision to be made on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from matrixresource.vocabulary.names import CabinetName, NodeName


@dataclass(frozen=True)
class NodeOffer:
    """One node as the placement sees it. `obstacle` says why it cannot be taken; None means it is free.

    `fault` is what would still keep it out were its holder gone.
    """

    name: NodeName
    obstacle: str | None = None
    holder: str | None = None
    fault: str | None = None

    @property
    def cabinet(self) -> CabinetName:
        return self.name.cabinet

    @property
    def free(self) -> bool:
        return self.obstacle is None


@dataclass(frozen=True)
class Snapshot:
    """The offers of all nodes, on one version of the topology."""

    nodes: tuple[NodeOffer, ...]
    topology_version: str = ""
    by_name: dict[NodeName, NodeOffer] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})

    def without(self, names: Iterable[NodeName], why: str) -> Snapshot:
        """The same moment with some nodes out of reach."""
        gone = set(names)
        return Snapshot(
            tuple(NodeOffer(n.name, why, n.holder, n.fault) if n.free and n.name in gone else n for n in self.nodes),
            self.topology_version,
        )

    def free(self) -> list[NodeOffer]:
        return [node for node in self.nodes if node.free]
