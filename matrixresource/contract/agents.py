"""Node agents: their assignments, their reports, and the answers to those."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.api.reports import Count, ItemsValidatedSeparately
from matrixcommon.emulation.stages import STAGE_NAME_MAX
from matrixcommon.model.empty import empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.fields import DieNumber, PartName, PortName
from matrixresource.contract.nodes import NodeInventory, NodeTask, Power

LOST_AFTER_LEASES = 2.0
"""An agent is Stale when its lease has run out and Lost after this many leases without a report."""


class DesiredPartition(ApiModel):
    """A part of a node for one allocation: dies by number (NPU k is dies 2k and 2k+1, both even where the NPU is a
    single die; none for a pool), CPU sockets and GiB of memory."""

    allocation: str = Field(max_length=127, description="the allocation that holds the part")
    rank: int | None = Field(None, description="rank of the part among the members; null: sockets and memory of a pool")
    dies: list[DieNumber] = Field(
        default_factory=empty_list,
        max_length=16,
        description="numbers of its dies in the node: NPU k is dies 2k and 2k+1, both even where it is a single die",
    )
    cpus: int = Field(0, ge=0, description="CPU sockets that it has")
    memory_gib: int = Field(0, ge=0, description="memory that it has, GiB")


class AssignmentView(ResourceView):
    """The desired state of one node: Clean, Spare or Member of one allocation, or parts of it for several.

    With `power` Off the node stays with its allocation but is switched off. The generation fences older specs; any
    change to the whole node or to a part increments it. A `task` is done once, when the node is clean; `taskGeneration`
    tells it from the previous one. For the task `update`, `firmware` is the version to write. `traceparent` is the W3C
    trace context of the request behind it, where that was recorded.
    """

    desired_role: Literal["Clean", "Spare", "Member"] = Field(
        description="what the node is to be: Clean (wiped), or Spare or Member of one allocation"
    )
    allocation: str | None = Field(
        None, description="the allocation that it is to be a spare or member of; null: none, or parts for several"
    )
    rank: int | None = Field(None, description="rank that it is to have among the members; null: none, or a spare")
    power: Power = Field("On", description="Off: the node is to be switched off, and stays with its allocation")
    task: NodeTask | None = Field(None, description="work to be done once; null: none")
    task_generation: int = Field(
        0, description="generation that the task came with, which tells it from the one before"
    )
    firmware: str | None = Field(None, description="firmware version to write, with task update")
    parts: list[DesiredPartition] = Field(
        default_factory=empty_list, description="the parts of the node that allocations hold"
    )
    traceparent: str | None = Field(None, description="W3C trace context of the request behind it; null: not recorded")


class ReportedFault(ApiModel):
    """A fault code that is present on a component of the node (`npu5`, `npu5-die1`, `l1p3`, `node`)."""

    code: str = Field(max_length=40, description="code of the fault; its level follows from fault_levels.yaml")
    component: str = Field(max_length=40, description="what is faulty, such as npu5, npu5-die1, l1p3 or node")
    severity: Literal["hint", "minor", "major", "critical"] | None = Field(
        None, description="as the agent judges it; an unknown code is harmless if hint or minor, otherwise it isolates"
    )
    message: str = Field("", max_length=300, description="details, for people")


class PartReport(ApiModel):
    """The agent's progress with one part. A part that is no longer assigned is wiped, then no longer reported."""

    allocation: str = Field(max_length=127, description="the allocation that holds the part")
    status: Literal["Preparing", "Active", "Releasing", "Failed"] = Field(
        description="Preparing, Active, Releasing (being wiped) or Failed"
    )
    message: str = Field("", max_length=300, description="why it failed; empty otherwise")


class NodeReport(ApiModel):
    """A resource agent's report on its node.

    `epoch` counts the agent's restarts and `sequence` its reports since the last one; a report older than the newest is
    refused. `generation` is the newest spec the agent has accepted, `status` its progress with that spec. `inventory`
    is sent once after each start, when it changes, and when an answer asks for it. `ports` maps each port to its
    neighbour (null: none answers): all ports once after each start and whenever the inventory is asked for, otherwise
    those that changed.
    """

    node: NodeName = Field(description="name of the node")
    epoch: Count = Field(description="counts starts of the agent; reports of an earlier epoch are refused")
    sequence: Count = Field(
        description="counts reports since the agent started; one that is not newer than the last is refused"
    )
    lease_s: float = Field(
        gt=0,
        le=86_400,
        description="time until which the next report is due (s, emulated): later the agent is Stale, after twice that "
        "Lost",
    )
    power: Power = Field("On", description="Off: the node is switched off")
    status: Literal[
        "Verifying", "Inspecting", "Clean", "Preparing", "Spare", "Deploying", "Active", "Stopping", "Off", "Cleaning",
        "Updating", "Failed",
    ] = Field(description="progress with the assignment of the node; Failed: a stage failed for good")  # fmt: skip
    generation: Count = Field(description="newest generation of the assignment that the agent has accepted")
    allocation: str | None = Field(
        None, max_length=127, description="allocation whose work is on the node; null: none, or only parts"
    )
    stage: str | None = Field(
        None, max_length=STAGE_NAME_MAX, description="stage in progress, or the one that failed; null: none"
    )
    parts: list[PartReport] = Field(
        default_factory=empty_list,
        max_length=64,
        description="progress with each part; one that has been wiped is left out",
    )
    message: str = Field("", max_length=300, description="details of the stage, or why it failed")
    inventory: NodeInventory | None = Field(None, description="what is in the node; null: the same as last accepted")
    ports: dict[PortName, PartName | None] | None = Field(
        None,
        max_length=1024,
        description="what answers at each port, null: nothing; a port that is left out is as last accepted",
    )
    faults: list[ReportedFault] = Field(
        default_factory=empty_list, max_length=256, description="all faults that are present on the node"
    )


class NodeReports(ApiModel):
    """A batch of reports: the agents of a fleet share one connection."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "reports": [
                {
                    "node": "sn0-c00-n0",
                    "epoch": 1_099_511_627_776,
                    "sequence": 1,
                    "leaseS": 60,
                    "status": "Clean",
                    "generation": 0,
                }
            ]
        },
    )

    reports: list[Annotated[NodeReport, ItemsValidatedSeparately]] = Field(
        max_length=4096, description="reports of one or more nodes; each is accepted or refused by itself"
    )


class ReportAnswer(ApiModel):
    """Whether the report was accepted, and the newest spec unless the agent has it already, so that a lost watch event
    does no lasting harm.

    `inventoryWanted` asks the agent to send its inventory with the next report, because none is on record.
    """

    node: str = Field(description="the node that was reported on")
    accepted: bool = Field(description="whether the report was accepted")
    reason: str | None = Field(
        None, description="why it was refused, such as NotFound or StaleReport; null: it was accepted"
    )
    message: str = Field("", description="the same as a sentence, where there is more to say")
    inventory_wanted: bool = Field(
        False, description="whether to send inventory and all ports with the next report, as none is on record"
    )
    desired: AssignmentView | None = Field(
        None, description="the assignment of the node; null: the agent has the newest"
    )


class ReportAnswers(ApiModel):
    """One answer for each report of a batch, in the same order."""

    answers: list[ReportAnswer] = Field(description="one for each report, in the same order")
