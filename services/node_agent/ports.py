"""The ports of a node that can be broken, by name, for every plane."""

from __future__ import annotations

from functools import cache

from matrixresource.topology.spec import SupernodeSpec


@cache
def port_names() -> list[str]:
    """`ub-p3-k11` (L1 of sub-plane 3 to L2 number 11), `npu5-die1-p2` (a die to L1), `rdma-npu5-die0`, `vpc`."""
    spec = SupernodeSpec.load()
    uplinks = [f"ub-p{p}-k{k:02d}" for p in range(spec.ub.sub_planes) for k in range(spec.ub.l2_per_sub_plane)]
    dies = [(npu, die) for npu in range(spec.node.npus) for die in range(spec.npu.dies)]
    down = [f"npu{npu}-die{die}-p{p}" for npu, die in dies for p in range(spec.ub.sub_planes)]
    return [*uplinks, *down, *(f"rdma-npu{npu}-die{die}" for npu, die in dies), "vpc"]
