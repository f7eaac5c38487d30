"""The wire contract of maintenances. Times are emulated: moments in RFC 3339, durations in seconds."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import CabinetName, NodeName, SupernodeName, SwitchName
from matrixcommon.model.quantities import parse_timestamp, validate_timestamp
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.nodes import FIRMWARE_VERSION

TargetKind = Literal["node", "cabinet", "switch", "supernode"]
KINDS: tuple[TargetKind, ...] = ("node", "cabinet", "switch", "supernode")


class MaintenanceTarget(ApiModel):
    """The target of a maintenance: exactly one of these fields."""

    node: NodeName | None = Field(None, description="one node")
    cabinet: CabinetName | None = Field(None, description="the nodes of a cabinet")
    switch: SwitchName | None = Field(None, description="a switch of the UB or RDMA plane")
    supernode: SupernodeName | None = Field(None, description="all nodes of a supernode")

    @model_validator(mode="after")
    def _exactly_one(self) -> MaintenanceTarget:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            raise ValueError("name exactly one of node, cabinet, switch and supernode")
        return self

    @property
    def kind(self) -> TargetKind:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def name(self) -> str:
        return str(getattr(self, self.kind))

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class MaintenanceBudget(ApiModel):
    """How many nodes of the target may be unavailable at once, including those that are out for other reasons."""

    max_unavailable: int = Field(1, ge=1, le=49152, description="limit over all its nodes")
    max_unavailable_per_cabinet: int | None = Field(None, ge=1, le=64, description="limit per cabinet")


class MaintenanceSpec(ApiModel):
    """The work to do, its target and time, and how many nodes at once."""

    target: MaintenanceTarget = Field(description="what to work on")
    action: Literal["Service", "Firmware"] = Field(
        "Service",
        description="Service: keep it out so that someone can work on it. Firmware: its agent writes the firmware",
    )
    firmware: str | None = Field(
        None,
        min_length=1,
        max_length=80,
        pattern=FIRMWARE_VERSION,
        description="the version to write, with action Firmware",
        validate_default=True,
    )
    service_s: float | None = Field(
        None,
        gt=0,
        le=1e7,
        description="with action Service: how long each node is kept out; by default until somebody recovers the node, "
        "or deletes the switch's drain",
    )
    not_before: str | None = Field(None, max_length=40, description="the earliest start; by default at once")
    deadline: str | None = Field(
        None, max_length=40, description="after it no new node is begun, and those under way are brought back"
    )
    movable: bool = Field(
        True, description="true: members of instances are moved away; false: it waits until they have left"
    )
    budget: MaintenanceBudget = Field(MaintenanceBudget(), description="how many nodes may be out at once")
    reason: str = Field("", max_length=120, description="why; shown in notices and on the nodes")

    @field_validator("action")
    @classmethod
    def _for_target(cls, action: str, given: ValidationInfo) -> str:
        target = given.data.get("target")
        if action == "Firmware" and target is not None and target.kind == "switch":
            raise ValueError("the firmware of switches is not emulated; use action Service")
        return action

    @field_validator("firmware")
    @classmethod
    def _with_action(cls, firmware: str | None, given: ValidationInfo) -> str | None:
        if "action" in given.data and (given.data["action"] == "Firmware") != (firmware is not None):
            raise ValueError("action Firmware needs the version to write; action Service takes none")
        return firmware

    @field_validator("service_s")
    @classmethod
    def _for_service(cls, service_s: float | None, given: ValidationInfo) -> float | None:
        if service_s is not None and given.data.get("action") == "Firmware":
            raise ValueError("action Firmware lasts as long as the agents need; leave serviceS out")
        return service_s

    @field_validator("not_before", "deadline")
    @classmethod
    def _moment(cls, text: str | None) -> str | None:
        return None if text is None else validate_timestamp(text)

    @field_validator("deadline")
    @classmethod
    def _after_start(cls, deadline: str | None, given: ValidationInfo) -> str | None:
        begins = given.data.get("not_before")
        if deadline is not None and begins is not None and parse_timestamp(deadline) <= parse_timestamp(begins):
            raise ValueError(f"deadline has to be after notBefore, {begins}")
        return deadline

    @field_validator("movable")
    @classmethod
    def _not_for_switch(cls, movable: bool, given: ValidationInfo) -> bool:
        target = given.data.get("target")
        if not movable and target is not None and target.kind == "switch":
            raise ValueError("a switch has no members to move, only routes around it: leave movable out")
        return movable

    @property
    def starts_at(self) -> float:
        """s, emulated; 0 without `notBefore`."""
        return parse_timestamp(self.not_before) if self.not_before else 0.0

    @property
    def ends_at(self) -> float:
        return parse_timestamp(self.deadline) if self.deadline else float("inf")


class MaintenanceRequest(MaintenanceSpec):
    """A maintenance, and its labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "target": {"cabinet": "sn0-c03"},
            "action": "Service",
            "serviceS": 1800,
            "reason": "new fans",
            "notBefore": "2100-01-01T00:00:00Z",
        },
    )

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")


class MaintenanceUnit(ApiModel):
    """A node, or the switch, that a maintenance works on, and its progress.

    Pending; Cordoned (takes nothing new, waits until it is vacated); Draining; InService; Returning (its agent checks
    it); Done; Failed; Skipped (not worked on, `reason` says why).
    """

    name: str = Field(description="the node, or the switch")
    state: Literal["Pending", "Cordoned", "Draining", "InService", "Returning", "Done", "Failed", "Skipped"] = Field(
        "Pending", description="its progress; Done, Failed and Skipped are final"
    )
    reason: str = Field("", description="what it waits for, or why it ended, as one word")
    message: str = Field("", description="the same as a sentence")
    since: str | None = Field(None, description="when it entered its state")
    worked: bool = Field(False, description="whether the work on it was done")
    instances: list[str] = Field(default_factory=empty_list, description="the allocations that hold it now")
    firmware_before: str | None = Field(
        None, description="firmware version when the maintenance first saw it; null: not known, or a switch"
    )
    firmware: str | None = Field(None, description="as last reported by its agent")

    @property
    def settled(self) -> bool:
        return self.state in ("Done", "Failed", "Skipped")


class MaintenanceCounts(ApiModel):
    """The number of units by progress."""

    total: int = Field(0, description="all units")
    pending: int = Field(0, description="units on which no work has begun: Pending or Cordoned")
    under_way: int = Field(0, description="units that are Draining, InService or Returning")
    done: int = Field(0, description="units that were worked on and are back")
    failed: int = Field(0, description="units that could not be worked on, or did not come back")
    skipped: int = Field(0, description="units that were not worked on")


class MaintenanceView(ResourceView, MaintenanceSpec):
    """One maintenance: its spec and its progress."""

    phase_reason: str = Field("", description="why it is in its state, or what it waits for, as one word")
    message: str = Field("", description="the same as a sentence")
    counts: MaintenanceCounts = Field(MaintenanceCounts(), description="number of units by progress")
    units: list[MaintenanceUnit] = Field(
        default_factory=empty_list, description="the nodes, or the switch, each with its progress"
    )
    instances: list[str] = Field(
        default_factory=empty_list, description="the instances on what is still to be worked on"
    )
    started_at: str | None = Field(None, description="when the first unit was begun, in emulated time; null: not yet")
    finished_at: str | None = Field(None, description="when it ended, in emulated time; null: not yet")
