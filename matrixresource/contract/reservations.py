"""What a reservation in time is asked for, and what it shows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from matrixcommon.model.empty import empty_list
from matrixcommon.model.quantities import checked_moment, from_timestamp
from matrixcommon.model.resource_model import ResourceView
from matrixresource.contract.allocations import AllocationRequest


class ReservationRequest(AllocationRequest):
    """What shall be kept from `startsAt` (RFC 3339, emulated time) for `durationS` seconds.

    It is an allocation's spec for later: without lease, without taking from another reservation.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"nodes": 1, "startsAt": "2100-01-01T00:00:00Z", "durationS": 3600},
    )

    starts_at: str = Field(max_length=40)
    duration_s: Annotated[float, Field(gt=0, le=1e9)]

    @field_validator("starts_at")
    @classmethod
    def _moment(cls, text: str) -> str:
        return checked_moment(text)

    @model_validator(mode="after")
    def _plain(self) -> ReservationRequest:
        if self.lease_s is not None or self.reservation is not None:
            raise ValueError("leaseS and reservation are for allocations; a reservation has durationS")
        if self.preemption != "Never":
            raise ValueError("a reservation puts nobody out")
        return self

    @property
    def start(self) -> float:
        return from_timestamp(self.starts_at)

    def spec(self) -> AllocationRequest:
        """The allocation's spec in it."""
        return AllocationRequest.from_stored(self.model_dump(exclude={"starts_at", "duration_s"}))


class ReservationView(ResourceView):
    """One reservation. `nodes` is where it lies now: promised, or held once its time has come. `request` is what was
    asked for, and can be asked for again.

    States: Promised; Active (held under an allocation of the same name, of which others may take); Waiting (its time
    has come, and not all of its nodes are free: condition Scheduled); Ended.
    """

    starts_at: str
    ends_at: str
    duration_s: float
    request: dict[str, Any]
    nodes: list[str] = Field(default_factory=empty_list)
