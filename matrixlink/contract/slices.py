"""Slices, and the paths that are left to protected ones: requests and views. Rates are GB/s (10^9 bytes per second)
each way."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixlink.contract.peerings import SecurityRule, SecurityRules
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView
from matrixlink.model.protection import Protection
from matrixlink.model.qos import QosClass

__all__ = ["FabricView", "NodePorts", "PlaneView"]  # published here too: the workload's contract

Rate = Annotated[float, Field(ge=0, le=1e6)]
MEMBERS_MAX = 4096


class SliceRequest(ApiModel):
    """A share of one plane to be promised. `floor_gbps_per_npu` is guaranteed on every link the members need; between
    floor and ceiling the slice gets its share, by weight, of the capacity that is promised to nobody. The default
    weight is the class's."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "allocation": "deepseek-r1",
            "instance": "deepseek-r1",
            "plane": "ub",
            "members": ["sn0-c00-n0"],
            "qosClass": "BestEffort",
            "weight": 2,
        },
    )

    project: str = Field("default", min_length=1, max_length=63, description="project that the slice is to belong to")
    labels: dict[str, str] = Field(
        default_factory=empty_dict, max_length=64, description="labels by key, for selection in filters; at most 64"
    )
    allocation: str = Field(
        min_length=1, max_length=253, description="allocation that holds the members: its name, or `project/name`"
    )
    instance: str = Field(
        min_length=1,
        max_length=253,
        description="instance that the slice serves; its slices together form one fabric view",
    )
    plane: Plane = Field(description="plane to share: ub (scale-up), rdma (scale-out) or vpc (to the outside)")
    members: list[NodeName] = Field(
        min_length=1,
        max_length=MEMBERS_MAX,
        description="nodes between which bandwidth is requested, each once; on UB all of one supernode",
    )
    qos_class: QosClass = Field(description="Guaranteed requires a floor, Burstable may have one, BestEffort has none")
    floor_gbps_per_npu: Rate = Field(
        0.0, description="GB/s guaranteed to each NPU, each way, on every link the members need"
    )
    ceiling_gbps_per_npu: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="the most GB/s that each NPU may use, each way; null: no limit"
    )
    weight: Annotated[float, Field(ge=0.001, le=1000)] | None = Field(
        None, description="weight of its share in capacity promised to nobody; null: that of its class (4, 2 or 1)"
    )
    latency_bound_us: Annotated[float, Field(gt=0)] | None = Field(
        None, description="one-way microseconds between two nodes, refused if the plane takes longer; null: no bound"
    )
    protection: Protection = Field(
        Protection.NONE,
        description="the single failure that the floor survives in full; anyPort and disjointPath for RDMA, the other "
        "levels for UB",
    )
    security_rules: SecurityRules = Field(
        default_factory=empty_list,
        description="only for VPC: traffic that the members accept and send, in addition to that within the slice",
    )

    REFERENCES: ClassVar = ("allocation", "instance", "security_rules")

    @property
    def references(self) -> list[str]:
        """Security rules are left out: they may name another project's slice as a remote."""
        return [self.allocation, self.instance]


class SliceView(ResourceView):
    """A slice: its spec, how much of it is kept now, and how far its routes are programmed."""

    allocation: str = Field(description="the allocation that its members belong to")
    instance: str = Field(description="the instance it serves")
    plane: Plane = Field(description="ub, rdma or vpc")
    members: list[str] = Field(description="nodes between which its bandwidth is promised")
    qos_class: QosClass = Field(description="who yields first when capacity is short: BestEffort, then Burstable")
    floor_gbps_per_npu: float = Field(description="guaranteed on every link the members need, GB/s one way")
    floor_kept_gbps_per_npu: float = Field(description="how much of the floor is kept now, GB/s one way")
    ceiling_gbps_per_npu: float | None = Field(
        None, description="the most that each NPU may use, GB/s one way; null: no limit"
    )
    weight: float = Field(description="weight of its share in capacity promised to nobody")
    latency_bound_us: float | None = Field(
        None, description="one-way microseconds between two nodes that were to be kept; null: no bound"
    )
    protection: Protection = Field(
        Protection.NONE,
        description="the single failure that the floor is to survive in full; none if no protection was requested",
    )
    protected: bool | None = Field(
        None,
        description="whether the floor would survive one more failure of that level; null if no protection was "
        "requested",
    )
    security_rules: list[SecurityRule] = Field(
        default_factory=empty_list,
        description="on VPC: traffic that its members accept and send, in addition to that within the slice",
    )
    isolation: str = Field(description="partitionKey on UB and RDMA, vni on VPC")
    isolation_key: int = Field(description="the key or VNI itself, unique to this slice")
    programmed: int = Field(0, description="members whose agents have acknowledged this generation")
    view_generation: int = Field(
        0, description="generation of its fabric view; incremented when what the members may use changes"
    )


class BackupPath(ApiModel):
    """The paths left to the worst pair of members after `fails` has failed (empty: now): the sub-planes (RDMA:
    subnets), the number of disjoint paths, and the largest share of a floor that any one path carries. A `*` stands for
    any member or NPU."""

    fails: str = Field(
        "", description="part that fails, with `*` for that of any member or NPU; empty for the present state"
    )
    sub_planes: list[int] = Field(description="sub-planes (RDMA: subnets) that every pair of members can then use")
    paths: int = Field(description="number of disjoint paths then left to the worst pair of members")
    largest_share: float = Field(description="largest share of a floor that any one path then carries, 0 to 1")


class BackupPathsView(ResourceView):
    """A protected slice, and the paths it would use after each failure it is meant to survive. State: Protected or
    Unprotected."""

    state: str = Field(
        "", description="Protected, or Unprotected if the floor would not survive some of these failures now"
    )
    plane: Plane = Field(description="plane of the slice: ub or rdma")
    protection: Protection = Field(description="the single failure that the floor is to survive in full")
    protected: bool = Field(description="whether the floor would survive each of these failures now")
    message: str = Field("", description="why the protection is lost; empty while it is not")
    floor_gbps_per_npu: float = Field(description="floor that is protected, GB/s per NPU each way")
    now: BackupPath = Field(description="paths in the present state")
    alternatives: list[BackupPath] = Field(description="paths after each failure of the protection level")
