"""Reservations in time: requests and views."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from matrixcommon.model.empty import empty_list
from matrixcommon.model.quantities import checked_moment, from_timestamp
from matrixcommon.model.resource_model import ResourceView
from matrixresource.contract.allocations import AllocationRequest


class ReservationRequest(AllocationRequest):
    """What to reserve from `startsAt` (RFC 3339, emulated time) for `durationS` seconds.

    It is an allocation's spec for later, without a lease and without drawing on another reservation.
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
            raise ValueError("leaseS and reservation are only for allocations; a reservation has durationS")
        if self.preemption != "Never":
            raise ValueError("a reservation cannot preempt")
        return self

    @property
    def start(self) -> float:
        return from_timestamp(self.starts_at)

    def spec(self) -> AllocationRequest:
        """The spec of the allocation it will become."""
        return AllocationRequest.from_stored(self.model_dump(exclude={"starts_at", "duration_s"}))


class ReservationView(ResourceView):
    """One reservation. `nodes` are the nodes it has: promised before its start, held after. `request` is the spec, and
    is itself a valid request.

    States: Promised; Active (held by an allocation of the same name, from which other allocations may draw); Waiting
    (its start has passed and some of its nodes are not free yet; see condition Scheduled); Ended.
    """

    starts_at: str
    ends_at: str
    duration_s: float
    request: dict[str, Any]
    nodes: list[str] = Field(default_factory=empty_list)
