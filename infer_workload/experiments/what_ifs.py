"""What-ifs: named changes to a trial, to be compared with the unchanged one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.experiments.trial import Trial
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized

LOSS_AT_S = 60.0


@dataclass(frozen=True)
class WhatIf:
    """A change to a trial, and its description."""

    text: str
    changes: Callable[[Trial], Mapping[str, Any]]


def _other_ratio(step: int) -> Callable[[Trial], Mapping[str, Any]]:
    """Add or remove (`step` 1 or -1) one prefill instance, its nodes taken from or given to the decode pool."""

    def changes(trial: Trial) -> Mapping[str, Any]:
        calibration = load_calibration(trial.machine)
        fabric, model = healthy_fabric(trial.nodes, calibration), load_model(trial.model)
        pools = lay_out(fabric, model, calibration, trial.shape()).pools
        moved = step * calibration.nodes_per_prefill_instance
        prefill, decode = pools.prefill_nodes + moved, len(pools.decode) - moved
        if min(prefill, decode) < 1:
            raise InvalidField(
                f"{pluralized(trial.nodes, 'node')} are too few to move a prefill instance", field="--nodes"
            )
        return {"prefill": prefill * NPUS_PER_NODE, "decode": decode * NPUS_PER_NODE}

    return changes


def _doubled_cache(trial: Trial) -> Mapping[str, Any]:
    calibration = load_calibration(trial.machine)
    now = calibration.cache_gb_per_node if trial.cache_gb is None else trial.cache_gb
    return {"cache_gb": 2 * now}


WHAT_IFS: Mapping[str, WhatIf] = {
    "lose-a-node": WhatIf(f"a decode node is lost at {LOSS_AT_S:g} s", lambda trial: {"lose_node_at": LOSS_AT_S}),
    "half-the-ub-floor": WhatIf(
        "half of the granted share of every UB port", lambda trial: {"ub_share": trial.ub_share / 2}
    ),
    "half-the-rdma-floor": WhatIf(
        "half of the granted share of every RDMA port", lambda trial: {"rdma_share": trial.rdma_share / 2}
    ),
    "neighbour-fills-half": WhatIf(
        "a neighbour on the same nodes offers half of the UB ports' bandwidth", lambda trial: {"neighbour_load": 0.5}
    ),
    "greedy-neighbour": WhatIf(
        "a neighbour with three times the weight sends as much as it can on UB",
        lambda trial: {"neighbour_load": 1.0, "neighbour_weight": 3.0},
    ),
    "greedy-neighbour-and-a-floor": WhatIf(
        "the same, with three quarters of the UB ports guaranteed to the instance",
        lambda trial: {"neighbour_load": 1.0, "neighbour_weight": 3.0, "floor_share": 0.75},
    ),
    "busy-rdma": WhatIf(
        "a neighbour offers half of the RDMA ports' bandwidth, beside the KV transfers",
        lambda trial: {"neighbour_load": 0.5, "neighbour_plane": "rdma"},
    ),
    "lose-an-l2-chip": WhatIf(
        "one more L2 chip, of 112, is lost", lambda trial: {"lost_l2_chips": trial.lost_l2_chips + 1}
    ),
    "half-the-lanes": WhatIf(
        "the UB cables of one more decode node lose half of their lanes",
        lambda trial: {"half_lanes": trial.half_lanes + 1},
    ),
    "double-the-cache": WhatIf("twice the memory for the context cache", _doubled_cache),
    "no-cache": WhatIf("no context cache", lambda trial: {"cache": False}),
    "cache-over-vpc": WhatIf("the cache is read over the VPC plane", lambda trial: {"cache_plane": "vpc"}),
    "no-mtp": WhatIf("no multi-token prediction", lambda trial: {"mtp": False}),
    "no-microbatches": WhatIf("no microbatches", lambda trial: {"microbatch": "off"}),
    "more-prefill": WhatIf("one more prefill instance, its nodes taken from decode", _other_ratio(1)),
    "more-decode": WhatIf("one fewer prefill instance, its nodes given to decode", _other_ratio(-1)),
    "half-the-nodes": WhatIf("half of the nodes", lambda trial: {"nodes": max(1, trial.nodes // 2)}),
}


def what_if(name: str, trial: Trial) -> Trial:
    """The trial with that change. Raises InvalidField for an unknown name, and for a change that does not apply."""
    if name not in WHAT_IFS:
        raise InvalidField(f"unknown what-if {name!r}; choose from {', '.join(WHAT_IFS)}", field="NAME")
    return trial.with_changes(dict(WHAT_IFS[name].changes(trial)))
