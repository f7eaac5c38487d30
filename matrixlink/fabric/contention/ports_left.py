"""What a slice may still use of a node's ports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AvailablePorts:
    """What a slice may still use of one node on one plane, an entry per sub-plane, GB/s: of the whole node's ports, out
    and in, and of one endpoint's (the slowest die's links or port; on VPC the card)."""

    out_gbps: list[float]
    in_gbps: list[float]
    endpoint_out_gbps: list[float]
    endpoint_in_gbps: list[float]
