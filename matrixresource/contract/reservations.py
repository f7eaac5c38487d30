"""What a reservation in time is asked for, and what it shows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from matrixcommon.model.quantities import LATEST_S, from_timestamp, timestamp
from matrixcommon.model.resource_model import ResourceView
from matrixresource.contract.allocations import AllocationRequest


class ReservationRequest(AllocationRequest):
    """What shall be kept from `startsAt` (RFC 3339, emulated time) for `durationS` seconds.

    It is an allocation's spec for later: without lease, without taking from another reservation.
    """

    starts_at: str = Field(max_length=40)
    duration_s: Annotated[float, Field(gt=0, le=1e9)]

    @field_validator("starts_at")
    @classmethod
    def _moment(cls, text: str) -> str:
        try:
            at = from_timestamp(text)
        except (ValueError, TypeError, OverflowError) as wrong:
            raise ValueError("write a moment such as 2026-01-31T08:00:00Z") from wrong
        if at > LATEST_S:
            raise ValueError(f"there is no moment after {timestamp(LATEST_S)}")
        if "Z" not in text and "+" not in text[10:] and "-" not in text[10:]:
            raise ValueError("say the time zone: end with Z")
        return text

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
        return AllocationRequest.model_validate(self.model_dump(exclude={"starts_at", "duration_s"}))


class ReservationView(ResourceView):
    """One reservation. `nodes` is where it lies now: promised, or held once its time has come.

    States: Promised; Held (under an allocation of the same name, of which others may take); Waiting (its time has come,
    who should have left has not); Ended.
    """

    starts_at: str
    ends_at: str
    request: dict[str, Any]
    nodes: list[str] = Field(default_factory=list)
