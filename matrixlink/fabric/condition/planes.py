"""PlaneModel: the three planes as their users see them: sub-planes, rates, hops, latency, measured payload rates.

Rates and latencies are those of the supernode's links. Measured payload rates come from `calibration.yaml`, where every
number has its source; measured latencies are there too, and the links of a path add up to them. Payload was measured on
the CloudMatrix384; on another machine it is the same share of a port's rate. The three planes have the same shape, so
everything above this file treats them alike.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixcommon.model.yaml_text import packaged_yaml
from matrixresource.topology import SupernodeSpec
from matrixresource.topology.loading import load_spec


@dataclass(frozen=True, slots=True)
class PlaneModel:
    """One plane of one supernode. Rates are GB/s each way, latencies microseconds one way."""

    plane: Plane
    sub_planes: int
    """The number of entries in `uplink_gbps` and `endpoint_gbps` of a FabricView."""
    uplink_gbps: float
    """The rate of a whole node in one sub-plane."""
    endpoint_gbps: float
    """The rate of one endpoint (a die, or the node's card) in one sub-plane."""
    endpoints_per_node: int
    npu_gbps: float
    """The largest floor that one NPU can have."""
    latency_us: float
    """Between two nodes: the sum over the links of a path."""
    payload_gbps: float
    """Measured, for one endpoint over all sub-planes: what is left of the rate after headers and waiting."""
    switches: int
    """Switches between two nodes."""
    qos_mechanism: str


@functools.cache
def plane_models(spec: SupernodeSpec | None = None) -> dict[Plane, PlaneModel]:
    """The three planes of a supernode built to `spec`, by default the published one."""
    return _models(spec or load_spec(), calibration())


def _models(spec: SupernodeSpec, measured: dict[str, Any]) -> dict[Plane, PlaneModel]:
    node, die, there = spec.node, spec.die, load_spec()

    def payload(plane: str, rate_gbps: float, measured_at_gbps: float) -> float:
        return used_value(measured, plane, "payload_gbps", "inter-node") * rate_gbps / measured_at_gbps

    return {
        Plane.UB: PlaneModel(
            Plane.UB, spec.ub.sub_planes, spec.ub.l1_uplink_gbps, die.ub_link_gbps, node.dies, spec.npu.ub_gbps,
            spec.latency.between_nodes_us("ub"), payload("ub", die.ub_gbps, there.die.ub_gbps), 3,
            measured["ub"]["qos"]["mechanism"],
        ),
        Plane.RDMA: PlaneModel(
            Plane.RDMA, 1, node.npus * spec.npu.rdma_gbps, die.rdma_gbps, node.dies, spec.npu.rdma_gbps,
            spec.latency.between_nodes_us("rdma"), payload("rdma", die.rdma_gbps, there.die.rdma_gbps), 3,
            measured["rdma"]["qos"]["mechanism"],
        ),
        Plane.VPC: PlaneModel(
            Plane.VPC, 1, node.vpc_gbps, node.vpc_gbps, 1, node.vpc_gbps / node.npus,
            spec.latency.between_nodes_us("vpc"), payload("vpc", node.vpc_gbps, there.node.vpc_gbps), 1,
            measured["vpc"]["qos"]["mechanism"],
        ),
    }  # fmt: skip


def used_value(measured: dict[str, Any], plane: str, quantity: str, path: str) -> float:
    """The entry of the calibration that is marked as used; there must be exactly one."""
    found = [entry for entry in measured[plane][quantity] if entry["path"] == path and entry.get("used")]
    if len(found) != 1:
        raise InvalidField(
            f"{len(found)} entries of {path} are marked as used instead of one", field=f"{plane}.{quantity}"
        )
    return float(found[0]["value"])


def calibration() -> dict[str, Any]:
    """The measured numbers with their sources; every source that they name is checked to be listed."""
    document: dict[str, Any] = packaged_yaml("matrixlink.fabric.condition", "calibration.yaml")
    for plane in Plane:
        for quantity in ("latency_us", "payload_gbps"):
            for entry in document[plane][quantity]:
                for code in entry["source"]:
                    if code not in document["sources"]:
                        raise InvalidField(f"{code} is not among the sources", field=f"{plane}.{quantity}")
    return document
