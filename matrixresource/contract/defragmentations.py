"""What a defragmentation is asked for, what it shows, and how one member is asked to lie elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.allocations import AllocationRequest, PlacementPolicy
from matrixresource.contract.fields import MEMBERS_MAX

INSTANCE_LABEL = "cloudmatrix.io/instance"
"""On an allocation that MatrixCompute made for an instance, and moves."""
POD_LABEL = "cloudmatrix.io/pod-group"
"""On an allocation made for pods, which cannot be moved while they run."""

Mover = Literal["MatrixCompute", "MatrixResource"]


class DefragmentationRequest(ApiModel):
    """The room to be made: a block of so many whole `nodes` in one `level`, or a `request` that is refused now.

    Without a `name` it gets one. With `topologyVersion` it is planned on that version or refused.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": 4},)

    name: str | None = Field(None, max_length=63)
    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict)
    nodes: Annotated[int | None, Field(ge=1, le=MEMBERS_MAX)] = None
    level: Literal["cabinet", "supernode"] = "cabinet"
    request: AllocationRequest | None = None
    topology_version: str = Field("", max_length=200)

    @model_validator(mode="after")
    def _one_of_both(self) -> DefragmentationRequest:
        if (self.nodes is None) == (self.request is None):
            raise ValueError("give either nodes (of a block) or a request")
        return self

    def spec(self) -> AllocationRequest:
        """As an allocation's spec; a block's is for whole nodes that lie in one domain."""
        if self.request is not None:
            return AllocationRequest.from_stored(self.request.spec_dict())
        placement = PlacementPolicy(policy="pack", level=self.level, required=True)
        return AllocationRequest(project=self.project, nodes=self.nodes, placement=placement)


class MoveView(ApiModel):
    """One member that moves: the allocation, its rank, the nodes it is placed on before and after, and who moves it."""

    allocation: str
    rank: int
    source: str = Field(alias="from")
    to: str
    npus: float
    by: Mover
    state: Literal["Waiting", "Moving", "Moved"] = "Waiting"

    @property
    def open(self) -> bool:
        return self.state != "Moved"


class DefragmentationView(ResourceView):
    """A plan for review and how far it is. `moves` are done one after another; `room` are the nodes of the block.

    `blockBefore` and `blockAfter` are the most whole nodes free in one domain of `level` ("" for all there is).
    `npus` is what was approved to be moved at the most, `npusMoved` what has been. `exact`: the search for fewer came
    to its end.
    """

    nodes: int
    level: str
    request: AllocationRequest
    moves: list[MoveView] = Field(default_factory=empty_list)
    room: list[str] = Field(default_factory=empty_list)
    block_before: int
    block_after: int
    npus: float
    npus_moved: float
    moves_done: int
    topology_version: str
    exact: bool
    cancelling: bool = False
    message: str = ""


class RelocateRequest(ApiModel):
    """One member of an allocation shall lie on another node: `node` is where it is, `to` where it goes.

    `defragmentation` names the plan whose move under way this is; such a move may cross what the plan keeps free.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "to": "sn0-c05-n0"},)

    node: NodeName
    to: NodeName
    defragmentation: str | None = Field(None, max_length=63)


class MoveRefused(ApiModel):
    """A move of a defragmentation that its mover cannot carry out, and why."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"allocation": "deepseek-r1", "node": "sn0-c00-n0", "to": "sn0-c05-n0", "reason": "Conflict"},
    )

    allocation: str = Field(max_length=127)
    node: NodeName
    to: NodeName
    reason: str = Field(max_length=60)
    message: str = Field("", max_length=1000)
