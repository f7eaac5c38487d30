"""The directed links of the RDMA and VPC planes, and the paths of moves over them, like `UbPaths` for UB.

RDMA reaches every supernode. An NPU has a port in each of two subnets, one per die; if a port fails, the other remains.
A cabinet has a leaf per subnet, and every leaf a trunk to each of the supernode's spines, which both subnets share:
traffic between ends without a common subnet crosses there. How supernodes are connected is unpublished; spines are
assumed to reach one nonblocking core, over trunks as wide as those below them. VPC is one Qingtian card per node on a
nonblocking data-centre fabric. Counts and rates are from `topology/cloudmatrix384.yaml`, with their sources.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.fabric_traffic.collectives import CollectiveStep, Ints
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.traffic import Traffic, traffic

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Parts of moves: the move, the subnets of the outgoing and incoming ports, and the share of the move's bytes."""

    move: Ints
    out: Ints
    into: Ints
    share: NDArray[np.float64]


@dataclass(frozen=True)
class RdmaPaths:
    """`supernodes` of `cabinets` with `npus` each; dies are numbered across all of them, two per NPU. Lost elements are
    ports as (NPU, subnet), leaves as (supernode, cabinet, subnet) and spines as (supernode, spine)."""

    supernodes: int = 1
    cabinets: int = 12
    npus: int = 32
    subnets: int = 2
    spines: int = 8
    port_gbps: float = 25.0
    trunk_gbps: float = 100.0
    lost_ports: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    lost_leaves: frozenset[tuple[int, int, int]] = field(default_factory=frozenset)
    lost_spines: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def capacity(self) -> NDArray[np.float64]:
        """The capacities (GB/s) of ports out, ports in, leaf to spine, spine to leaf, spine to core, core to spine."""
        port = np.where(self._usable_ports(), self.port_gbps, 0.0).ravel()
        trunk = np.full((self.supernodes, self.cabinets, self.subnets, self.spines), self.trunk_gbps)
        for leaf in self.lost_leaves:
            trunk[leaf] = 0.0
        trunk *= self._healthy_spines()[:, None, None, :]
        core = self._healthy_spines() * (self.cabinets * self.subnets * self.trunk_gbps)
        return np.concatenate([port, port, trunk.ravel(), trunk.ravel(), core.ravel(), core.ravel()])

    def striped(self, step: CollectiveStep) -> Traffic:
        """Split every move evenly over the subnets that both ends still have, as the routes of slices do. The spine is
        selected from the healthy ones by the target NPU's number."""
        source, target = self._ends(step)
        parts = self._over_subnets(source, target)
        return self._traffic(step, source, target, parts, target[parts.move], target[parts.move])

    def hashed(self, step: CollectiveStep, seed: int) -> Traffic:
        """Keep every move whole, on a random subnet and random spines (from `seed`), as ECMP selects them by a hash."""
        rng = np.random.default_rng(seed)
        source, target = self._ends(step)
        parts = self._over_subnets(source, target)
        order = rng.permutation(len(parts.move))
        _, first = np.unique(parts.move[order], return_index=True)
        kept = order[first]
        whole = _Parts(parts.move[kept], parts.out[kept], parts.into[kept], np.ones(len(kept)))
        turns = rng.integers(0, 1 << 30, (2, len(kept)))
        return self._traffic(step, source, target, whole, turns[0], turns[1])

    def sprayed(self, step: CollectiveStep) -> Traffic:
        """Split every move over both subnets and all healthy spines, as packet spraying does."""
        source, target = self._ends(step)
        parts = self._over_subnets(source, target)
        most = int(self._healthy_spines().sum(1).max())
        turn = np.tile(np.arange(most), len(parts.move))
        move, out, into = (np.repeat(each, most) for each in (parts.move, parts.out, parts.into))
        cut = _Parts(move, out, into, np.repeat(parts.share / most, most))
        return self._traffic(step, source, target, cut, turn, turn)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _ends(self, step: CollectiveStep) -> tuple[Ints, Ints]:
        source, target = step.source // 2, step.target // 2
        last = self.supernodes * self.cabinets * self.npus
        if max(source.max(), target.max()) >= last or min(source.min(), target.min()) < 0:
            raise InvalidField(f"dies are numbered 0 to {2 * last - 1}", field="dies")
        if (source == target).any():
            raise InvalidField("the dies of one NPU do not meet over RDMA", field="dies")
        return source, target

    def _usable_ports(self) -> Bools:
        """Whether each NPU can use each subnet: its port and its leaf work."""
        there = np.ones((self.supernodes, self.cabinets, self.npus, self.subnets), bool)
        for supernode, cabinet, subnet in self.lost_leaves:
            there[supernode, cabinet, :, subnet] = False
        flat = there.reshape(-1, self.subnets)
        for npu, subnet in self.lost_ports:
            flat[npu, subnet] = False
        return flat

    def _healthy_spines(self) -> Bools:
        living = np.ones((self.supernodes, self.spines), bool)
        for lost in self.lost_spines:
            living[lost] = False
        if not living.any(1).all():
            raise InvalidField("no spine of this supernode is left", field="lost_spines")
        return living

    def _over_subnets(self, source: Ints, target: Ints) -> _Parts:
        there = self._usable_ports()
        common = there[source] & there[target]
        move, subnet = np.nonzero(common)
        share = 1 / common.sum(1)[move]
        apart = np.flatnonzero(~common.any(1))
        cut = apart[~(there[source[apart]].any(1) & there[target[apart]].any(1))]
        if len(cut):
            raise InvalidField("an NPU of this move has no port left", field=f"moves[{int(cut[0])}]")
        out, into = there[source[apart]].argmax(1), there[target[apart]].argmax(1)
        return _Parts(
            np.concatenate([move, apart]), np.concatenate([subnet, out]), np.concatenate([subnet, into]),
            np.concatenate([share, np.ones(len(apart))]),
        )  # fmt: skip

    def _traffic(
        self, step: CollectiveStep, source: Ints, target: Ints, parts: _Parts, up: Ints, down: Ints
    ) -> Traffic:
        """`up` and `down`: which of the healthy spines each part uses in its own and in the target's supernode."""
        ports, leaves = self.supernodes * self.cabinets * self.npus * self.subnets, self.cabinets * self.subnets
        trunks, cores = self.supernodes * leaves * self.spines, self.supernodes * self.spines
        from_npu, to_npu = source[parts.move], target[parts.move]
        from_leaf = from_npu // self.npus * self.subnets + parts.out
        to_leaf = to_npu // self.npus * self.subnets + parts.into
        here, there = from_leaf // leaves, to_leaf // leaves
        climbs, leaves_home = from_leaf != to_leaf, here != there
        first = self._spine(here, up)
        last = np.where(leaves_home, self._spine(there, down), first)
        base = 2 * ports
        columns = [
            from_npu * self.subnets + parts.out,
            np.where(climbs, base + from_leaf * self.spines + first, -1),
            np.where(leaves_home, base + 2 * trunks + here * self.spines + first, -1),
            np.where(leaves_home, base + 2 * trunks + cores + there * self.spines + last, -1),
            np.where(climbs, base + trunks + to_leaf * self.spines + last, -1),
            ports + to_npu * self.subnets + parts.into,
        ]
        return traffic(self.capacity(), np.stack(columns, 1), size=step.size * parts.share)

    def _spine(self, supernode: Ints, turn: Ints) -> Ints:
        living = self._healthy_spines()
        order = np.argsort(~living, axis=1, kind="stable")
        return order[supernode, turn % living.sum(1)[supernode]]


@dataclass(frozen=True)
class VpcPaths:
    """`nodes` with a card each; moves are between nodes. `card_gbps`: the remaining rate of each card, one number for
    all or one per node, for a tenant's rate limit or a degraded card."""

    nodes: int = 48
    card_gbps: float | tuple[float, ...] = 50.0

    def striped(self, step: CollectiveStep) -> Traffic:
        """Send every move out through the source's card and in through the target's."""
        if (step.source == step.target).any():
            raise InvalidField("a node does not meet itself over VPC", field="nodes")
        if max(step.source.max(), step.target.max()) >= self.nodes:
            raise InvalidField(f"nodes are numbered 0 to {self.nodes - 1}", field="nodes")
        cards = np.broadcast_to(np.asarray(self.card_gbps, float), self.nodes)
        return traffic(
            np.concatenate([cards, cards]), np.stack([step.source, self.nodes + step.target], 1), size=step.size
        )
