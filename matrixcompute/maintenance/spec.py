"""A maintenance as it is asked for and shown. Times are emulated: moments in RFC 3339, lengths in seconds."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import CabinetName, NodeName, SupernodeName, SwitchName
from matrixcommon.model.quantities import checked_moment, from_timestamp
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.nodes import FIRMWARE_VERSION

TargetKind = Literal["node", "cabinet", "switch", "supernode"]
KINDS: tuple[TargetKind, ...] = ("node", "cabinet", "switch", "supernode")


class MaintenanceTarget(ApiModel):
    """What is worked on: exactly one of these."""

    node: NodeName | None = Field(None, description="one node")
    cabinet: CabinetName | None = Field(None, description="the nodes of a cabinet")
    switch: SwitchName | None = Field(None, description="a switch of the UB or RDMA plane")
    supernode: SupernodeName | None = Field(None, description="all nodes of a supernode")

    @model_validator(mode="after")
    def _one(self) -> MaintenanceTarget:
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
    """How many nodes of the target may be unavailable at once, those that are out for other reasons counted in."""

    max_unavailable: int = Field(1, ge=1, le=49152, description="of all its nodes")
    max_unavailable_per_cabinet: int | None = Field(None, ge=1, le=64, description="of those in one cabinet")


class MaintenanceSpec(ApiModel):
    """What is to be done, to what, when, and how much of it at once."""

    target: MaintenanceTarget = Field(description="what is worked on")
    action: Literal["Service", "Firmware"] = Field(
        "Service",
        description="Service: kept out for somebody to work on it. Firmware: its agent writes the firmware",
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
        description="with action Service, for how long each is kept out; left out, until somebody recovers the node, "
        "or deletes the switch's drain",
    )
    not_before: str | None = Field(None, max_length=40, description="nothing is touched before; left out, at once")
    deadline: str | None = Field(None, max_length=40, description="begins nothing after it, and brings back the rest")
    movable: bool = Field(
        True, description="whether members of instances are moved away; else it waits until they have left"
    )
    budget: MaintenanceBudget = Field(MaintenanceBudget(), description="how many nodes at once")
    reason: str = Field("", max_length=120, description="why; it is shown in notices and with the nodes")

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
            raise ValueError("action Firmware takes the version to write, and action Service none")
        return firmware

    @field_validator("service_s")
    @classmethod
    def _for_service(cls, service_s: float | None, given: ValidationInfo) -> float | None:
        if service_s is not None and given.data.get("action") == "Firmware":
            raise ValueError("action Firmware takes as long as the agents take; leave serviceS out")
        return service_s

    @field_validator("not_before", "deadline")
    @classmethod
    def _moment(cls, text: str | None) -> str | None:
        return None if text is None else checked_moment(text)

    @field_validator("deadline")
    @classmethod
    def _after_start(cls, deadline: str | None, given: ValidationInfo) -> str | None:
        begins = given.data.get("not_before")
        if deadline is not None and begins is not None and from_timestamp(deadline) <= from_timestamp(begins):
            raise ValueError(f"it is to lie after notBefore, {begins}")
        return deadline

    @field_validator("movable")
    @classmethod
    def _moves_nobody(cls, movable: bool, given: ValidationInfo) -> bool:
        target = given.data.get("target")
        if not movable and target is not None and target.kind == "switch":
            raise ValueError("routes go around a switch and nobody is moved: leave movable out")
        return movable

    @property
    def starts_at(self) -> float:
        """s, emulated; from ever where it does not say."""
        return from_timestamp(self.not_before) if self.not_before else 0.0

    @property
    def ends_at(self) -> float:
        return from_timestamp(self.deadline) if self.deadline else float("inf")


class MaintenanceRequest(MaintenanceSpec):
    """A maintenance to be had."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "target": {"cabinet": "sn0-c03"},
            "action": "Service",
            "serviceS": 1800,
            "reason": "new fans",
            "notBefore": "2100-01-01T00:00:00Z",
        },
    )

    labels: dict[str, str] = Field(default_factory=empty_dict)


class MaintenanceUnit(ApiModel):
    """One node, or the switch, that a maintenance works on, and how far it is.

    Pending; Cordoned (takes no newcomers, waits until it is left); Draining; InService; Returning (its agent checks
    it); Done; Failed; Skipped (not worked on, `reason` says why).
    """

    name: str
    state: Literal["Pending", "Cordoned", "Draining", "InService", "Returning", "Done", "Failed", "Skipped"] = "Pending"
    reason: str = Field("", description="what it waits for, or why it ended so, as a word")
    message: str = Field("", description="the same as a sentence")
    since: str | None = Field(None, description="since when it has been in its state")
    worked: bool = Field(False, description="whether the work on it was done")
    instances: list[str] = Field(default_factory=empty_list, description="who has it now")
    firmware_before: str | None = None
    firmware: str | None = Field(None, description="as its agent last reported")

    @property
    def settled(self) -> bool:
        return self.state in ("Done", "Failed", "Skipped")


class MaintenanceCounts(ApiModel):
    """How many units are how far."""

    total: int = 0
    pending: int = 0
    under_way: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0


class MaintenanceView(ResourceView, MaintenanceSpec):
    """One maintenance: what was asked, and how far it is."""

    phase_reason: str = Field("", description="why it is in its state, or what it waits for, as a word")
    message: str = Field("", description="the same as a sentence")
    counts: MaintenanceCounts = MaintenanceCounts()
    units: list[MaintenanceUnit] = Field(default_factory=empty_list)
    instances: list[str] = Field(
        default_factory=empty_list, description="who has anything of what is still to be worked on"
    )
    started_at: str | None = None
    finished_at: str | None = None
