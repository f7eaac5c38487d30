"""Node agents: their assignments, their reports, and the answers to those."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.api.reports import Count, EachByItself
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

    allocation: str = Field(max_length=127)
    rank: int | None = None
    dies: list[DieNumber] = Field(default_factory=empty_list, max_length=16)
    cpus: int = Field(0, ge=0)
    memory_gib: int = Field(0, ge=0)


class AssignmentView(ResourceView):
    """The desired state of one node: Clean, Spare or Member of one allocation, or parts of it for several.

    With `power` Off the node stays with its allocation but is switched off. The generation fences older specs; any
    change to the whole node or to a part increments it. A `task` is done once, when the node is clean; `taskGeneration`
    tells it from the previous one. For the task `update`, `firmware` is the version to write. `traceparent` is the W3C
    trace context of the request behind it, where that was recorded.
    """

    desired_role: Literal["Clean", "Spare", "Member"]
    allocation: str | None = None
    rank: int | None = None
    power: Power = "On"
    task: NodeTask | None = None
    task_generation: int = 0
    firmware: str | None = None
    parts: list[DesiredPartition] = Field(default_factory=empty_list)
    traceparent: str | None = None


class ReportedFault(ApiModel):
    """A fault code that is present on a component of the node (`npu5`, `npu5-die1`, `l1p3`, `node`)."""

    code: str = Field(max_length=40)
    component: str = Field(max_length=40)
    severity: Literal["hint", "minor", "major", "critical"] | None = None
    message: str = Field("", max_length=300)


class PartReport(ApiModel):
    """The agent's progress with one part. A part that is no longer assigned is wiped, then no longer reported."""

    allocation: str = Field(max_length=127)
    status: Literal["Preparing", "Active", "Releasing", "Failed"]
    message: str = Field("", max_length=300)


class NodeReport(ApiModel):
    """A resource agent's report on its node.

    `epoch` counts the agent's restarts and `sequence` its reports since the last one; a report older than the newest is
    refused. `generation` is the newest spec the agent has accepted, `status` its progress with that spec. `inventory`
    is sent once after each start, when it changes, and when an answer asks for it. `ports` maps each port to its
    neighbour (null: none answers): all ports once after each start and whenever the inventory is asked for, otherwise
    those that changed.
    """

    node: NodeName
    epoch: Count
    sequence: Count
    lease_s: float = Field(gt=0, le=86_400)
    power: Power = "On"
    status: Literal[
        "Verifying", "Inspecting", "Clean", "Preparing", "Spare", "Deploying", "Active", "Stopping", "Off", "Cleaning",
        "Updating", "Failed",
    ]  # fmt: skip
    generation: Count
    allocation: str | None = Field(None, max_length=127)
    stage: str | None = Field(None, max_length=STAGE_NAME_MAX)
    parts: list[PartReport] = Field(default_factory=empty_list, max_length=64)
    message: str = Field("", max_length=300)
    inventory: NodeInventory | None = None
    ports: dict[PortName, PartName | None] | None = Field(None, max_length=1024)
    faults: list[ReportedFault] = Field(default_factory=empty_list, max_length=256)


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

    reports: list[Annotated[NodeReport, EachByItself]] = Field(max_length=4096)


class ReportAnswer(ApiModel):
    """Whether the report was accepted, and the newest spec unless the agent has it already, so that a lost watch event
    does no lasting harm.

    `inventoryWanted` asks the agent to send its inventory with the next report, because none is on record.
    """

    node: str
    accepted: bool
    reason: str | None = None
    message: str = ""
    inventory_wanted: bool = False
    desired: AssignmentView | None = None


class ReportAnswers(ApiModel):
    """One answer for each report of a batch, in the same order."""

    answers: list[ReportAnswer]
