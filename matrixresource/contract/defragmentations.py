"""Defragmentations: requests, views, and the relocation of a single member."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.fields import MEMBERS_MAX
from matrixresource.contract.requested_capacity import PlacementPolicy

INSTANCE_LABEL = "cloudmatrix.io/instance"
"""Set on an allocation that MatrixCompute made for an instance; MatrixCompute performs its moves."""
POD_LABEL = "cloudmatrix.io/pod-group"
"""Set on an allocation made for pods, which cannot be moved while the pods run."""

Mover = Literal["MatrixCompute", "MatrixResource"]


class DefragmentationRequest(ApiModel):
    """The room to make: a block of `nodes` whole nodes in one `level`, or enough for a `request` that is refused today.

    Without a `name` one is generated. With `topologyVersion` it is planned on that version or refused.
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
            raise ValueError("give either nodes (the size of a block) or a request, not both")
        return self

    def spec(self) -> AllocationRequest:
        """As an allocation's spec; for a block, that of whole nodes packed into one domain."""
        if self.request is not None:
            return AllocationRequest.from_stored(self.request.spec_dict())
        placement = PlacementPolicy(policy="pack", level=self.level, required=True)
        return AllocationRequest(project=self.project, nodes=self.nodes, placement=placement)


class MoveView(ApiModel):
    """The move of one member: its allocation and rank, the nodes before and after, and who carries it out."""

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
    """A plan for review, and its progress. `moves` run one after another; `room` lists the nodes of the block.

    `blockBefore` and `blockAfter` are the largest number of whole free nodes in one domain of `level` ("" for the whole
    machine). `npus` is the most that may be moved under the approval, `npusMoved` what has been moved. `exact`: the
    search proved that no smaller plan exists.
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
    """Move one member of an allocation from `node` to `to`.

    `defragmentation` names the plan whose current move this is; only such a move may use nodes that the plan keeps
    free.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "to": "sn0-c05-n0"},)

    node: NodeName
    to: NodeName
    defragmentation: str | None = Field(None, max_length=63)


class MoveRefused(ApiModel):
    """A move of a defragmentation that whoever performs it cannot carry out, and why."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"allocation": "deepseek-r1", "node": "sn0-c00-n0", "to": "sn0-c05-n0", "reason": "Conflict"},
    )

    allocation: str = Field(max_length=127)
    node: NodeName
    to: NodeName
    reason: str = Field(max_length=60)
    message: str = Field("", max_length=1000)
