"""backup_paths: the paths a protected slice would use after each failure that it is meant to survive.

A slice's backup is not an idle second path: it is the other paths, which already carry their part, carrying more. For
each possible failure an alternative therefore gives the sub-planes (RDMA: subnets) and the number of disjoint paths
left to the worst pair of members, and the largest share of a floor that any one path then carries. Disjoint between
nodes: two L2 chips share no link, nor do two spines.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import name_of
from matrixlink.admission.slice_index import SliceState
from matrixlink.contract.slices import BackupPath, BackupPathsView
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import Protection
from matrixlink.routing.rdma_routing import RdmaPortState, failure_states, pair_weights, subtract_shares
from matrixlink.routing.ub_routing import kinds_of, pair_states


def backup_paths(fabric: Fabric, terms: SliceState) -> BackupPathsView:
    """The alternatives of one protected slice on the fabric in its present condition."""
    states = list((_ub_paths if terms.plane == Plane.UB else _rdma_paths)(fabric, terms))
    return BackupPathsView(
        name=name_of(terms.name),
        project=terms.project,
        plane=terms.plane,
        protection=terms.protection,
        state="Unprotected" if terms.unprotected else "Protected",
        protected=not terms.unprotected,
        message=terms.unprotected,
        floor_gbps_per_npu=terms.floor_gbps,
        now=states[0],
        alternatives=states[1:],
    )


def _ub_paths(fabric: Fabric, terms: SliceState) -> Iterator[BackupPath]:
    """For each state, the worst over all pairs of kinds of members."""
    kinds = list(dict.fromkeys(kinds_of(fabric, terms.members).values()))
    fails = terms.protection.fails
    ways = [
        pair_states(a.chips, die, b.chips, their, fails)
        for at, a in enumerate(kinds)
        for b in kinds[at:]
        for die, _ in a.dies
        for their, _ in b.dies
    ]
    names = ["", *_failure_names(terms, fabric)]
    for state, name in enumerate(names):
        used = np.min([planes[state] > 0 for planes, _ in ways], axis=0)
        paths = min(int((chips[state] > 0).sum()) for _, chips in ways)
        largest = max(float(chips[state].max()) for _, chips in ways)
        yield BackupPath(
            fails=name, sub_planes=np.flatnonzero(used).tolist(), paths=paths, largest_share=round(largest, 9)
        )


def _failure_names(terms: SliceState, fabric: Fabric) -> list[str]:
    """What fails in each state, in the order of `pair_states`; a member's own part stands for that of any member."""
    supernode, planes = fabric.supernode_name(terms.members[0]), range(fabric.spec.ub.sub_planes)
    patterns = {
        Protection.ANY_CABLE: [f"*.{port}" for port in fabric.ports.uplinks],
        Protection.ANY_L2_CHIP: [f"{supernode}-{switch}" for switch in fabric.ports.l2_switches],
        Protection.ANY_L1_CHIP: [f"*-l1p{p}" for p in planes],
        Protection.ANY_SUB_PLANE: [f"{supernode}-ub-p{p}" for p in planes],
    }
    return patterns[terms.protection]


def _rdma_paths(fabric: Fabric, terms: SliceState) -> Iterator[BackupPath]:
    survey = RdmaPortState(fabric, list(terms.members))
    spines = fabric.spec.rdma.spines
    whole, *failures = failure_states(terms.protection.fails, survey.dies)
    port = terms.protection == Protection.ANY_PORT
    names = [f"*.rdma-npu*-die{d}" if port else f"rdma-p{d}" for d in range(survey.dies)]
    for name, left in [("", whole), *zip(names, failures, strict=True)]:
        used, paths, largest = set(range(survey.dies)), survey.dies * spines, 0.0
        for cabinet, kinds in survey.kinds.items():
            for mine in kinds:
                for theirs, between in survey.peers(cabinet):
                    found = pair_weights(subtract_shares(mine, left), subtract_shares(theirs, left), between)
                    weights = found.weights if found else (0.0,) * survey.dies
                    open_to = {d for d, weight in enumerate(weights) if weight > 0}
                    lanes = [1 if between.same else sum(s > 0 for s in between.spines[d]) for d in open_to]
                    used, paths, largest = used & open_to, min(paths, sum(lanes)), max(largest, *weights)
        yield BackupPath(fails=name, sub_planes=sorted(used), paths=paths, largest_share=round(largest, 9))
