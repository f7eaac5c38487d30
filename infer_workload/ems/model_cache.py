"""The model cache: weights of a model kept in the caching pool, so that starting dies need not go to the object store.

Thin so far: one model, whole or absent, no versions. The first load comes from the persistent store and fills the pool;
later ones read the pool over UB. Times only; starting the executors is added by who starts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import fetch_gbps
from infer_workload.timing.fabric import DIES_PER_NODE, UB, Fabric
from infer_workload.timing.model import ServedModel


@dataclass
class ModelCache:
    """Which models the pool holds."""

    calibration: Calibration
    models: set[str] = field(default_factory=set)

    def load_s(
        self, model: ServedModel, fabric: Fabric, readers: Sequence[str], pool: Sequence[str], experts_per_die: int
    ) -> float:
        """Seconds until all dies of `readers` have their weights; afterwards the pool holds the model."""
        per_die = model.die_weight_bytes(experts_per_die)
        from_pool = (
            per_die * len(readers) * DIES_PER_NODE / (fetch_gbps(fabric, self.calibration, readers, pool, UB) * 1e9)
        )
        if model.name in self.models:
            return from_pool
        self.models.add(model.name)
        return model.parameters_total * model.weight_bytes / (self.calibration.obs_gbps * 1e9) + from_pool
