"""Reservations in time: requests and views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from matrixcommon.model.empty import empty_list
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import parse_timestamp, validate_timestamp
from matrixcommon.model.resource_model import ResourceView
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.requested_capacity import CapacityRequest, ExcludedNodes, TopologyVersion

OF_ALLOCATIONS = {
    "leaseS": "a reservation has no lease; it ends durationS seconds after startsAt",
    "reservation": "a reservation cannot draw on another one; it has startsAt and durationS of its own",
    "preemption": "a reservation cannot preempt; its nodes are kept free for it from startsAt on",
}
"""Fields of allocations that a reservation does not have, and what it has instead."""


class ReservationRequest(CapacityRequest):
    """What to reserve from `startsAt` (RFC 3339, emulated time) for `durationS` seconds.

    It becomes an allocation that lasts until the end of the reservation.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"nodes": 1, "startsAt": "2100-01-01T00:00:00Z", "durationS": 3600},
    )

    topology_version: TopologyVersion = ""
    exclude_nodes: ExcludedNodes = Field(default_factory=empty_list)
    starts_at: str = Field(
        max_length=40, description="when it starts, in emulated time (RFC 3339); must not have passed"
    )
    duration_s: float = Field(
        gt=0, le=1e9, description="how long it lasts from then on (s, emulated); what nobody has drawn is then released"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_allocations(cls, document: Any) -> Any:
        """Refuse fields of allocations by name; a client that sends one expects what a reservation does not do."""
        if isinstance(document, Mapping):
            for name, instead in OF_ALLOCATIONS.items():
                if name in document:
                    raise InvalidField(f"{name}: {instead}", field=name)
        return document

    @classmethod
    def from_stored(cls, document: Any) -> Self:
        """Earlier releases stored the fields of allocations as well, with their defaults."""
        if isinstance(document, Mapping):
            unset = {name for name in OF_ALLOCATIONS if document.get(name) in (None, "Never")}
            document = {name: value for name, value in document.items() if name not in unset}
        return super().from_stored(document)

    @field_validator("starts_at")
    @classmethod
    def _check_timestamp(cls, text: str) -> str:
        return validate_timestamp(text)

    @property
    def start(self) -> float:
        return parse_timestamp(self.starts_at)

    def spec(self) -> AllocationRequest:
        """The spec of the allocation it will become."""
        return AllocationRequest.from_stored(self.model_dump(exclude={"starts_at", "duration_s"}))


class ReservationView(ResourceView):
    """One reservation. `nodes` are the nodes it has: promised before its start, held after. `request` is the spec, and
    is itself a valid request.

    States: Promised; Active (held by an allocation of the same name, from which other allocations may draw); Waiting
    (its start has passed and some of its nodes are not free yet; see condition Scheduled); Ended.
    """

    starts_at: str = Field(description="when it starts, in emulated time")
    ends_at: str = Field(description="when it ends, in emulated time")
    duration_s: float = Field(description="how long it lasts (s, emulated)")
    request: dict[str, Any] = Field(
        description="what was requested, without its time; fields at their defaults are left out"
    )
    nodes: list[str] = Field(
        default_factory=empty_list,
        description="nodes of which it has all or a part: promised before its start, held after",
    )
