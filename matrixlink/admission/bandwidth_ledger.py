"""BandwidthLedger: who has been promised how much of which port.

A booking is a slice's floor as one vector per node or RDMA leaf, together with the reserve for surviving a failure. It
is all or nothing, and never exceeds what a port has. The sum on each port is recomputed whenever a booking on it
changes, so that rounding errors do not accumulate. The ledger knows nothing of routes or classes; admission uses it to
decide. Amounts are GB/s each way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.routing.routes import Demand, Vector

ROUNDING = 1e-9
"""How far floats may exceed a port's capacity, relatively, through rounding alone."""

Position = tuple[Plane, str]
"""A plane, and the node or RDMA leaf whose ports a vector describes."""


@dataclass(frozen=True, slots=True, eq=False)
class Booking:
    """What one slice holds on one plane: its floor, and its floor with its reserve (the same if there is no
    reserve)."""

    plane: Plane
    floors: Demand
    whole: Demand


class BandwidthLedger:
    """`capacity(plane, owner)` is called each time, so a link may change under its bookings (`overcommitted_ports`
    shows that)."""

    def __init__(self, fabric: Fabric, capacity: Callable[[Plane, str], Vector]) -> None:
        self.fabric = fabric
        self._capacity = capacity
        self._bookings: dict[str, Booking] = {}
        self._on: dict[Position, dict[str, Vector]] = {}
        self._sum: dict[Position, Vector] = {}

    def copy(self, fabric: Fabric, capacity: Callable[[Plane, str], Vector]) -> BandwidthLedger:
        """The same bookings over another fabric, as an independent copy."""
        other = BandwidthLedger(fabric, capacity)
        other._bookings = dict(self._bookings)
        other._on = {place: dict(owners) for place, owners in self._on.items()}
        other._sum = dict(self._sum)
        return other

    # ---- in vectors -------------------------------------------------------------------------------------------------

    def free(self, plane: Plane, owner: str, instead_of: str = "") -> Vector:
        """What is left of each port besides promises to slices other than `instead_of`; negative if a port has lost
        capacity that was booked."""
        capacity, booked = self._capacity(plane, owner), self._sum.get((plane, owner))
        if booked is None:
            return capacity
        own = self._on[plane, owner].get(instead_of)
        left: Vector = capacity - booked if own is None else capacity - (booked - own)
        return left

    def overcommitted_ports(self, plane: Plane, amounts: Demand, instead_of: str = "") -> list[tuple[str, int]]:
        """Ports (owner and place) that cannot carry `amounts` if what `instead_of` holds is released. Empty if it
        fits."""
        found: list[tuple[str, int]] = []
        for owner, amount in amounts.items():
            over = amount - self.free(plane, owner, instead_of)
            if over.max() <= 0:
                continue
            slack = ROUNDING * np.maximum(self._capacity(plane, owner), 1.0)
            if (lacking := np.flatnonzero(over > slack)).size:
                found += [(owner, int(at)) for at in lacking]
        return found

    def put(self, name: str, booking: Booking) -> None:
        """Record a booking in place of what the slice held, without checking that it fits."""
        self.release(name)
        self._bookings[name] = booking
        for owner, amount in booking.whole.items():
            place = (booking.plane, owner)
            owners = self._on.setdefault(place, {})
            owners[name] = amount
            self._sum[place] = amount if len(owners) == 1 else self._sum[place] + amount

    def release(self, name: str) -> None:
        """Release everything a slice holds, if anything."""
        booking = self._bookings.pop(name, None)
        for owner in booking.whole if booking else ():
            place = (booking.plane, owner)  # type: ignore[union-attr]
            owners = self._on[place]
            del owners[name]
            if owners:
                left = list(owners.values())
                self._sum[place] = left[0] if len(left) == 1 else np.sum(left, axis=0)
            else:
                del self._on[place], self._sum[place]

    def booking(self, name: str) -> Booking | None:
        return self._bookings.get(name)

    def names(self) -> set[str]:
        return set(self._bookings)

    def total(self, plane: Plane, owner: str) -> Vector:
        """All promises on each port of a node or leaf."""
        booked = self._sum.get((plane, owner))
        return booked if booked is not None else np.zeros_like(self._capacity(plane, owner))

    def places(self) -> Iterator[tuple[Position, Vector]]:
        """Every node and leaf with bookings, and their sum."""
        yield from self._sum.items()

    # ---- link by link -----------------------------------------------------------------------------------------------

    def booked(self, link: str) -> float:
        """All promises on a link, by its name."""
        owner, _, port = link.partition(".")
        place = self.fabric.place(owner, port)
        total = self._sum.get((place[0], owner)) if place else None
        return 0.0 if total is None or place is None else float(total[place[1]])

    def owners(self, link: str) -> list[str]:
        """The slices with a promise on a link."""
        owner, _, port = link.partition(".")
        place = self.fabric.place(owner, port)
        on = self._on.get((place[0], owner), {}) if place else {}
        return [name for name, amount in on.items() if place and amount[place[1]] > 0]

    def reserved(self, name: str) -> Mapping[str, float]:
        """What a slice holds of each link."""
        booking = self._bookings.get(name)
        found: dict[str, float] = {}
        for owner, amount in booking.whole.items() if booking else ():
            links = self.fabric.link_names(booking.plane, owner)  # type: ignore[union-attr]
            found |= {link: float(each) for link, each in zip(links, amount, strict=True) if each}
        return found
