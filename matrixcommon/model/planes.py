"""The three network planes of a supernode.

UB joins NPUs and CPUs inside the supernode (scale-up), RDMA joins NPUs across supernodes (scale-out),
VPC joins nodes to the data centre through their Qingtian cards (management, storage, tenants).
"""

from __future__ import annotations

from enum import StrEnum


class Plane(StrEnum):
    """One of the three planes; the value is the name used on the wire."""

    UB = "ub"
    RDMA = "rdma"
    VPC = "vpc"
