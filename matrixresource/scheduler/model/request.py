"""Requests and placements."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DomainConstraint:
    """The domain (node, cabinet, supernode) to which a constraint applies, and the other allocations or the maximum it
    names.

    One that is not `required` is satisfied as far as possible: a spread then takes the smallest `most` that fits.
    """

    over: str = "cabinet"
    most: int = 0
    others: tuple[str, ...] = ()
    required: bool = True


@dataclass
class PlacementRequest:
    """A request for `nodes` distinct nodes with `npus_per_node` NPUs each (0.5 is a die); sockets and GiB come from
    anywhere.

    `required_domain` keeps everything in one cabinet or supernode; `supernode_block` is a number of nodes that must not
    straddle supernodes, `cabinet_block` one that must not straddle cabinets; `spread` limits the nodes in one domain;
    `anti_affinity` and `affinity` name other allocations and ignore those that do not exist. `preferred_domain` is a
    cabinet or supernode level to stay inside if possible; `excluded_nodes` are not used. `lease_end` is when the
    requester says it will leave, in seconds, infinite if it does not say. `mem_by_node` says which nodes the GiB come
    from; their sum is `mem`.
    """

    nodes: int
    npus_per_node: float = 8
    required_domain: str = ""
    supernode_block: int = 1
    spread: DomainConstraint | None = None
    anti_affinity: DomainConstraint | None = None
    affinity: DomainConstraint | None = None
    spares: int = 0
    cpus: int = 0
    mem: int = 0
    priority: int = 0
    preempts: bool = False
    weight: float = 1
    lease_end: float = float("inf")
    excluded_nodes: frozenset[int] = frozenset()
    preferred_domain: str = ""
    cabinet_block: int = 1
    mem_by_node: tuple[tuple[int, int], ...] = ()
    unconstrained: bool = field(init=False)

    def __post_init__(self) -> None:
        self.unconstrained = not (
            self.spread or self.anti_affinity or self.affinity or self.spares or self.cpus or self.mem
            or self.excluded_nodes or self.preferred_domain or self.cabinet_block > 1
            or (self.nodes > 1 and self.npus_per_node != 8)
        )  # fmt: skip

    def with_nodes(self, nodes: int) -> PlacementRequest:
        """The same request for another number of nodes."""
        return PlacementRequest(
            nodes, self.npus_per_node, self.required_domain, self.supernode_block, self.spread, self.anti_affinity,
            self.affinity, self.spares, self.cpus, self.mem, self.priority, self.preempts, self.weight, self.lease_end,
            self.excluded_nodes, self.preferred_domain, self.cabinet_block, self.mem_by_node,
        )  # fmt: skip

    @property
    def has_preferences(self) -> bool:
        """Whether any of it is only a preference."""
        return bool(self.preferred_domain) or any(
            rule is not None and not rule.required for rule in (self.spread, self.anti_affinity, self.affinity)
        )

    @property
    def npus(self) -> float:
        return self.nodes * self.npus_per_node


Amounts = list[tuple[int, int]]


@dataclass(slots=True, init=False)  # explicit methods are compiled, those that a dataclass generates are not
class Placement:
    """Where an allocation is placed: whole nodes as (cabinet, mask), parts as (node, dies), spares as whole nodes."""

    whole: Amounts
    parts: Amounts
    spares: Amounts
    cpus: Amounts
    mem: Amounts

    def __init__(
        self,
        whole: Amounts | None = None,
        parts: Amounts | None = None,
        spares: Amounts | None = None,
        cpus: Amounts | None = None,
        mem: Amounts | None = None,
    ) -> None:
        self.whole = [] if whole is None else whole
        self.parts = [] if parts is None else parts
        self.spares = [] if spares is None else spares
        self.cpus = [] if cpus is None else cpus
        self.mem = [] if mem is None else mem

    def copy(self) -> Placement:
        return Placement(list(self.whole), list(self.parts), list(self.spares), list(self.cpus), list(self.mem))

    def cabinets(self, nodes: int) -> set[int]:
        """The cabinets of its NPUs; `nodes` is the number of nodes in a cabinet."""
        return {cabinet for cabinet, _ in self.whole} | {node // nodes for node, _ in self.parts}

    def used_cabinets(self, nodes: int) -> set[int]:
        """Every cabinet in which it holds anything."""
        found = self.cabinets(nodes) | {cabinet for cabinet, _ in self.spares}
        return found | {node // nodes for node, _ in self.cpus} | {node // nodes for node, _ in self.mem}
