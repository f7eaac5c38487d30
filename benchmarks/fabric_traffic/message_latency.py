"""Time of a single message between two endpoints on an idle fabric, by size, operation and hops.

On UB the time is the sum of a term for the endpoint, one for each switch crossed (one within a node, three between
nodes), and the bytes at the measured rate; `messages.yaml` has the terms beside the measured table that they explain.
On the RDMA and VPC planes the time follows from the plane's latency and payload rate in `calibration.yaml`. Times are
microseconds, sizes bytes.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.planes import PlaneModel, plane_models

TABLE = Path(__file__).with_name("messages.yaml")
TARGETS, OPERATIONS = ("npu", "cpu"), ("read", "write")


@functools.cache
def table() -> dict[str, Any]:
    """The terms and measurements of `messages.yaml`."""
    document: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return document


def latency_us(target: str, operation: str, across_nodes: bool) -> float:
    """The latency of an empty UB message (us). Raises InvalidField for an unknown target or operation."""
    if target not in TARGETS or operation not in OPERATIONS:
        raise InvalidField("a target is npu or cpu, an operation read or write", field="operation")
    terms = table()["terms"]
    extra = terms["write_extra_us"] if operation == "write" else 0.0
    switches = terms["switches"]["inter-node" if across_nodes else "intra-node"]
    return float(terms["endpoint_us"][target] + extra + switches * terms["hop_us"][operation])


def rate_gbps(target: str, operation: str, across_nodes: bool) -> float:
    """The rate of a long UB message of one die (GB/s)."""
    terms = table()["terms"]
    return float(terms["rate_gbps"][target][operation] * (terms["inter_node_rate"] if across_nodes else 1.0))


def message_us(size: float, target: str = "npu", operation: str = "read", across_nodes: bool = True) -> float:
    """The time of one UB message of `size` bytes (us)."""
    if not size >= 0:
        raise InvalidField("a size is at least 0", field="size")
    return latency_us(target, operation, across_nodes) + size / rate_gbps(target, operation, across_nodes) / 1e3


def message_us_on(plane: Plane, size: float) -> float:
    """The time of one message of `size` bytes between two nodes over a plane (us); on UB, a read of NPU memory."""
    if plane is Plane.UB:
        return message_us(size)
    if not size >= 0:
        raise InvalidField("a size is at least 0", field="size")
    model: PlaneModel = plane_models()[plane]
    return model.latency_us + size / model.payload_gbps / 1e3
