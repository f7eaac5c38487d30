"""agents."""

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
    """A part of a node for one allocation: dies by number (2k and 2k+1 are NPU k, both also where it
    is a single die; none for a pool), sockets, GiB."""

    allocation: str = Field(max_length=127)
    rank: int | None = None
    dies: list[DieNumber] = Field(default_factory=empty_list, max_length=16)
    cpus: int = Field(0, ge=0)
    memory_gib: int = Field(0, ge=0)


class AssignmentView(ResourceView):
    """What is requested of one node: Clean, Spare or Member of an allocation, and parts of it for several.

    With `power` Off the node is kept for its allocation and switched off. Its generation fences older specs; any change
    of the whole or of a part is a new one. A `task` is to be done once, when the node is clean: `taskGeneration` tells
    it from the last one. For the task `update`, `firmware` is the version to write.
    `traceparent` is the W3C context of the trace it was asked for in, where that is recorded.
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
    """A fault code on a component of the node (`npu5`, `npu5-die1`, `l1p3`, `node`), present at the time."""

    code: str = Field(max_length=40)
    component: str = Field(max_length=40)
    severity: Literal["hint", "minor", "major", "critical"] | None = None
    message: str = Field("", max_length=300)


class PartReport(ApiModel):
    """How far a node is with one part; one that is requested no more is wiped and then no longer reported."""

    allocation: str = Field(max_length=127)
    status: Literal["Preparing", "Active", "Releasing", "Failed"]
    message: str = Field("", max_length=300)


class NodeReport(ApiModel):
    """What a resource agent says of its node.

    `epoch` counts the agent's lives and `sequence` its reports in this life: an older one is refused. `generation` is
    the newest spec the agent has taken up, and `status` how far it is with it. `inventory` is reported once in each
    life, when it changes, and when an answer asks for it. `ports` says who answers at a port (null: nobody): all of
    them once in each life and whenever the inventory is asked for, else those where that has changed.
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
    """A batch: a fleet of agents shares one connection."""

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
    """Whether a report was taken, and the newest spec unless the agent holds it: lost watch events heal here.

    `inventoryWanted`: nothing is known of what the node consists of; say it with the next report.
    """

    node: str
    accepted: bool
    reason: str | None = None
    message: str = ""
    inventory_wanted: bool = False
    desired: AssignmentView | None = None


class ReportAnswers(ApiModel):
    """To each report of a batch, in its order."""

    answers: list[ReportAnswer]
