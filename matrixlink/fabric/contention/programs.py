"""The programs of slices on ports in some condition, for experiments that run without MatrixLink.

The stripes are those that `matrixlink.routing` chooses: a pair of endpoints spreads its traffic over sub-planes and L2
chips in proportion to what both have left, with detours for nodes and dies that have lost something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from matrixlink.fabric.contention.offers import Program
from matrixlink.fabric.contention.port_groups import Floats, PortShape
from matrixlink.fabric.contention.stripes import stripe_weights

Stripes = list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A slice on a plane: its members, its class's weight, and each member node's floor, GB/s."""

    slice: str
    plane: str
    members: tuple[str, ...]
    weight: float = 1.0
    floor_gbps: float = 0.0
    ceiling_gbps: float | None = None


@dataclass(frozen=True, eq=False)
class PortCondition:
    """The ports of some nodes: shares of their built rates, as in `PortGroups`."""

    shape: PortShape
    names: tuple[str, ...]
    share: Floats
    die_share: Floats

    @classmethod
    def whole(cls, shape: PortShape, names: tuple[str, ...]) -> PortCondition:
        dies = len(names), shape.dies, shape.sub_planes
        return cls(shape, names, np.ones((len(names), shape.ports)), np.ones(dies))

    def programs(self, tenant: Tenant) -> dict[str, Program]:
        """By member, the program that its agent would hold for the tenant's slice."""
        index = {name: at for at, name in enumerate(self.names)}
        rows = {node: index[node] for node in tenant.members}
        known: dict[tuple[bytes, bytes, bytes], Stripes] = {}
        return {node: self._program(tenant, node, rows, known) for node in tenant.members}

    def _program(
        self, tenant: Tenant, node: str, rows: Mapping[str, int], known: dict[tuple[bytes, bytes, bytes], Stripes]
    ) -> Program:
        program: dict[str, object] = {
            "plane": tenant.plane, "isolation_key": 0, "weight": tenant.weight, "floor_gbps": tenant.floor_gbps,
            "ceiling_gbps": tenant.ceiling_gbps, "peers": [peer for peer in tenant.members if peer != node],
            "detours": {},
        }  # fmt: skip
        if tenant.plane == "ub":
            return program | self._ub(node, rows, known)
        subnets = self.shape.dies_per_npu if tenant.plane == "rdma" else 1
        return program | {"stripes": [{"sub_plane": p, "weight": 1.0 / subnets, "spread": ()} for p in range(subnets)]}

    def _ub(
        self, node: str, rows: Mapping[str, int], known: dict[tuple[bytes, bytes, bytes], Stripes]
    ) -> dict[str, object]:
        mine, whole = self._cable_shares(rows[node]), np.ones(self.shape.sub_planes)

        def towards(cables: Floats, ends: Floats) -> Stripes:
            key = mine.tobytes(), cables.tobytes(), ends.tobytes()
            if key not in known:
                known[key] = _stripes(np.minimum(mine, cables), ends)
            return known[key]

        base = towards(np.ones_like(mine), whole)
        detours: dict[str, Stripes] = {}
        for die, ends in self._impaired_dies(rows[node]):
            detours[die] = towards(np.ones_like(mine), ends)
        for peer, row in rows.items():
            if peer != node and (stripes := towards(self._cable_shares(row), whole)) != base:
                detours[peer] = stripes
            if peer != node:
                detours |= {
                    f"{peer}-{die}": towards(self._cable_shares(row), ends) for die, ends in self._impaired_dies(row)
                }
        return {"stripes": base, "detours": detours}

    def _cable_shares(self, row: int) -> Floats:
        """Shares left of a node's cables, by sub-plane and L2 chip."""
        return self.share[row, : self.shape.uplinks].reshape(self.shape.sub_planes, -1)

    def _impaired_dies(self, row: int) -> list[tuple[str, Floats]]:
        """The dies of a node that have lost something, with the shares they have left."""
        per = self.shape.dies_per_npu
        lost = np.flatnonzero((self.die_share[row] < 1).any(axis=1)).tolist()
        return [(f"npu{die // per}-die{die % per}", self.die_share[row, die]) for die in lost]


def _stripes(left: Floats, ends: Floats) -> Stripes:
    weights, chips = stripe_weights(left, ends)
    found: Stripes = []
    for p, weight in enumerate(weights.tolist()):
        if weight > 0:
            even = chips[p].min() == chips[p].max()
            spread = () if even else tuple((chips[p] / chips[p].sum()).tolist())
            found.append({"sub_plane": p, "weight": weight, "spread": spread})
    return found
