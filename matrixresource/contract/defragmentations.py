"""Defragmentations: requests, views, and the relocation of a single member."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

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

    name: str | None = Field(None, max_length=63, description="name of the plan; by default one is generated")
    project: str = Field("default", min_length=1, max_length=63, description="the project that it belongs to")
    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels")
    nodes: int | None = Field(
        None, ge=1, le=MEMBERS_MAX, description="size of the block to make free, in whole nodes; excludes request"
    )
    level: Literal["cabinet", "supernode"] = Field(
        "cabinet", description="kind of domain that has to hold the whole block; with request its placement decides"
    )
    request: AllocationRequest | None = Field(
        None, description="an allocation that does not fit today, to make room for; excludes nodes"
    )
    topology_version: str = Field(
        "",
        max_length=200,
        description="topology version it is planned for; refused if the topology has changed since; empty: any",
    )

    @model_validator(mode="after")
    def _check_exactly_one(self) -> DefragmentationRequest:
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

    allocation: str = Field(description="the allocation whose member moves")
    rank: int = Field(description="rank of the member")
    source: str = Field(alias="from", description="node that it leaves")
    to: str = Field(description="node that takes its place")
    npus: float = Field(description="NPUs of the member")
    by: Mover = Field(description="who performs it: MatrixCompute for instances, otherwise MatrixResource")
    state: Literal["Waiting", "Moving", "Moved"] = Field("Waiting", description="Waiting (not begun), Moving or Moved")

    @property
    def open(self) -> bool:
        return self.state != "Moved"


class DefragmentationView(ResourceView):
    """A plan for review, and its progress. `moves` run one after another; `room` lists the nodes of the block.

    `blockBefore` and `blockAfter` are the largest number of whole free nodes in one domain of `level` ("" for the whole
    machine). `npus` is the most that may be moved under the approval, `npusMoved` what has been moved. `exact`: the
    search proved that no smaller plan exists.
    """

    nodes: int = Field(description="members, or nodes of the block, that room is made for")
    level: str = Field(description="domain that has to hold them all, cabinet or supernode; empty: the whole machine")
    request: AllocationRequest = Field(
        description="the allocation that room is made for; for a block, whole nodes packed into one domain"
    )
    moves: list[MoveView] = Field(
        default_factory=empty_list, description="moves of its members, one after another; completed ones come first"
    )
    room: list[str] = Field(default_factory=empty_list, description="nodes of the block that become free")
    block_before: int = Field(description="most whole free nodes in one such domain, before the moves")
    block_after: int = Field(description="most whole free nodes in one such domain, after the moves")
    npus: float = Field(description="most NPUs that may be moved under its approval")
    npus_moved: float = Field(description="NPUs moved so far")
    moves_done: int = Field(description="moves completed so far")
    topology_version: str = Field(description="topology version that it was last planned on")
    exact: bool = Field(description="whether the search proved that no plan moves fewer NPUs")
    cancelling: bool = Field(False, description="whether it was cancelled and its current move still has to end")
    message: str = Field("", description="what it waits for, why it was planned again, or why it ended")


class RelocateRequest(ApiModel):
    """Move one member of an allocation from `node` to `to`.

    `defragmentation` names the plan whose current move this is; only such a move may use nodes that the plan keeps
    free.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "to": "sn0-c05-n0"},)

    node: NodeName = Field(description="node of the member, all of which it holds")
    to: NodeName = Field(description="free node that takes its place")
    defragmentation: str | None = Field(
        None,
        max_length=63,
        description="the plan whose current move this is, which may use nodes that the plan keeps; null: none",
    )


class MoveRefused(ApiModel):
    """A move of a defragmentation that whoever performs it cannot carry out, and why."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"allocation": "deepseek-r1", "node": "sn0-c00-n0", "to": "sn0-c05-n0", "reason": "Conflict"},
    )

    allocation: str = Field(max_length=127, description="the allocation of the move")
    node: NodeName = Field(description="node that its member was to leave")
    to: NodeName = Field(description="node that it was to move to")
    reason: str = Field(
        max_length=60, description="why, as one word; it becomes that of the plan if the move cannot be planned again"
    )
    message: str = Field("", max_length=1000, description="the same as a sentence")
