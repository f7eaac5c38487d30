"""The model cache: weights kept in the caching pool, so that starting dies need not read from the object store.

The pool keeps several models in order of priority: as many as fit the memory that its nodes lend, the next ones on
their SSDs; the rest stays in the object store. The time of a load follows from the tier: the size over the rate of each
hop. From the object store the weights come once over VPC, then over UB to every die that needs them; from solid state
over all volumes in parallel, then over UB; from memory over UB alone, except for the part on nodes that are gone, which
comes from the object store. If no node lends memory, nothing is kept and each load begins at the object store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import fetch_gbps, ssd_read_s
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel

WeightsTier = Literal["Memory", "SolidState", "ObjectStore"]
MEMORY: WeightsTier = "Memory"
SOLID_STATE: WeightsTier = "SolidState"
OBJECT_STORE: WeightsTier = "ObjectStore"


def weights_gb(model: ServedModel) -> float:
    """The size of one copy of a model's weights, GB."""
    return model.parameters_total * model.weight_bytes / 1e9


@dataclass
class ModelCache:
    """The models that the pool keeps, and their tiers.

    `models` are the names of those read from the object store. `wanted` are the models to keep, in order of priority;
    others come last. `gb_per_node` is the memory it may use on a node (None: as much as all of them need),
    `ssd_gb_per_node` the space on its SSD, and `granted_bytes` the memory granted, bytes by node (None: not allocated,
    so all that it may use).
    """

    calibration: Calibration
    models: set[str] = field(default_factory=set)
    wanted: tuple[ServedModel, ...] = ()
    gb_per_node: float | None = None
    ssd_gb_per_node: float = 0.0
    granted_bytes: Mapping[str, float] | None = None

    def node_bytes(self, nodes: int) -> float:
        """The memory, in bytes, that it needs on each of that many nodes."""
        if self.gb_per_node is not None:
            return self.gb_per_node * 1e9
        return sum(weights_gb(each) for each in self.wanted) * 1e9 / max(1, nodes)

    def granted_nodes(self, pool: Sequence[str]) -> tuple[str, ...]:
        """The nodes of the pool that lend it memory."""
        granted = self.granted_bytes
        return tuple(pool) if granted is None else tuple(node for node in pool if granted.get(node, 0.0) > 0)

    def memory_bytes(self, pool: Sequence[str]) -> float:
        """The memory in which it keeps models, in bytes; infinite if neither a size nor a grant limits it.

        Memory lent by lost nodes counts until others lend in their place, so that a loss does not change which models
        are kept.
        """
        if self.granted_bytes is not None:
            return sum(self.granted_bytes.values())
        return inf if self.gb_per_node is None else self.gb_per_node * 1e9 * len(pool)

    def tiers(self, pool: Sequence[str], models: Iterable[ServedModel] = ()) -> dict[str, WeightsTier]:
        """The tier of each wanted model, and of `models`."""
        memory = self.memory_bytes(pool)
        solid = self.ssd_gb_per_node * 1e9 * len(self.granted_nodes(pool))
        found: dict[str, WeightsTier] = {}
        for model in (*self.wanted, *models):
            if model.name in found:
                continue
            size = weights_gb(model) * 1e9
            if model.name not in self.models:
                found[model.name] = OBJECT_STORE
            elif size <= memory * (1 + 1e-9):
                found[model.name], memory = MEMORY, memory - size
            elif size <= solid:
                found[model.name], solid = SOLID_STATE, solid - size
            else:
                found[model.name] = OBJECT_STORE
        return found

    def load_s(
        self, model: ServedModel, fabric: Fabric, readers: Sequence[str], pool: Sequence[str], experts_per_die: int
    ) -> float:
        """Seconds until all dies of `readers` have their weights, from their present tier."""
        tier, nodes = self.tiers(pool, (model,))[model.name], self.granted_nodes(pool)
        size, per_die = weights_gb(model) * 1e9, model.die_weight_bytes(experts_per_die)
        rate = fetch_gbps(fabric, self.calibration, readers, nodes or tuple(readers), self.calibration.memory_plane)
        spread = per_die * len(readers) * self.calibration.dies_per_node / (rate * 1e9) if rate > 0 else inf
        if tier == MEMORY:
            return self.lost_share(fabric) * size / (self.calibration.obs_gbps * 1e9) + spread
        if tier == SOLID_STATE:
            return ssd_read_s(self.calibration, size, nodes) + spread
        return size / (self.calibration.obs_gbps * 1e9) + spread

    def lost_share(self, fabric: Fabric) -> float:
        """The fraction of lent memory on nodes that are gone, and so of each model in memory."""
        granted = self.granted_bytes or {}
        whole, there = sum(granted.values()), sum(size for node, size in granted.items() if node in fabric.nodes)
        return 1.0 - there / whole if whole else 0.0

    def record_read(self, *models: ServedModel) -> None:
        """Record that the pool has read these models from the object store."""
        self.models.update(model.name for model in models)
