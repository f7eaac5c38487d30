"""admit: whether a slice can have its floor on every link it needs; if not, what is in the way and what would fit.

Floors are booked link by link at the maximum under the hose model (`routing.py`); protected ones at the maximum after
any one failure they must survive (`protection.py`). The bookings on a link never exceed its capacity. When links with
promised floors are lost, `reallocate` keeps as much of each floor as fits, better classes first, and restores them
fully when the links return. Amounts are GB/s each way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import pluralized
from matrixlink.admission.bandwidth_ledger import BandwidthLedger, Booking
from matrixlink.model.protection import Protection
from matrixlink.routing.routes import BandwidthNeeds, Demand, Vector

BLOCKING_LINKS_MAX = 20
"""The most links that a refusal lists; it states the total number."""


@dataclass(frozen=True, slots=True, eq=False)
class BandwidthRequest:
    """A requested floor, GB/s per NPU, and what one GB/s of it takes of each link."""

    owner: str
    plane: Plane
    needs: BandwidthNeeds
    floor_gbps: float
    protection: Protection = Protection.NONE
    rank: tuple[Any, ...] = ()
    """Priority when not all floors can be kept: lowest first."""

    @property
    def floors(self) -> Demand:
        return scaled_demand(self.needs.need, self.floor_gbps)

    @property
    def protected(self) -> bool:
        return self.protection != Protection.NONE

    def booking(self) -> Booking:
        """The whole floor with its whole reserve."""
        floors = self.floors
        if self.needs.reserve is self.needs.need:
            return Booking(self.plane, floors, floors)
        return Booking(self.plane, floors, scaled_demand(self.needs.reserve, self.floor_gbps))


@dataclass(frozen=True, slots=True)
class GrantResult:
    """How much of its floor a slice has (the share on its worst link, 0 to 1), and why its protection is lost, if it
    is."""

    part: float = 1.0
    unprotected: str = ""


def admit(book: BandwidthLedger, claim: BandwidthRequest) -> Booking:
    """What the floor takes of each link. Books nothing. Raises InsufficientBandwidth with the links in the way."""
    needs = claim.needs
    if claim.floor_gbps > 0 and needs.cut:
        raise _unreachable(claim, needs.cut, f"cannot reach each other on plane {claim.plane}")
    if claim.floor_gbps > 0 and needs.cut_by_failure:
        raise _unreachable(claim, needs.cut_by_failure, f"would be cut off by one failure ({claim.protection})")
    booking = claim.booking()
    short = book.overcommitted_ports(claim.plane, booking.whole, claim.owner)
    if not short:
        return booking
    fits = claim.floor_gbps * _grantable_share(book, claim.plane, booking.whole, claim.owner)
    lines = [
        _blocking_link(book, claim, owner, at, booking.whole[owner][at]) for owner, at in short[:BLOCKING_LINKS_MAX]
    ]
    surviving = f" that survives {claim.protection}" if claim.protected else ""
    raise InsufficientBandwidth(
        f"a floor of {claim.floor_gbps:g} GB/s per NPU{surviving} on plane {claim.plane} does not fit on {len(short)} "
        f"links; {fits:.4g} would",
        field="floorGbpsPerNpu",
        blocking=[{"plane": claim.plane, "links": len(short), "fitsFloorGbpsPerNpu": round(fits, 6)}, *lines],
    )


def reallocate(
    book: BandwidthLedger, claims: Iterable[BandwidthRequest], when_whole: BandwidthLedger | None = None
) -> dict[str, GrantResult]:
    """Book every claim again as far as it fits. Return what each one keeps.

    First, protected claims get what was set aside for them (the amount is in `when_whole`), so that nobody's detour
    takes it; then all floors are filled up in order of rank; last, what is left restores protections.
    """
    ordered = sorted(claims, key=lambda claim: claim.rank)
    for claim in ordered:
        book.release(claim.owner)
    for claim in ordered:
        aside = when_whole.booking(claim.owner) if when_whole and claim.protected else None
        if aside is not None:
            granted = {
                owner: np.minimum(amount, aside.whole.get(owner, np.zeros_like(amount)))
                for owner, amount in claim.floors.items()
            }
            granted, _ = grantable(book, claim.plane, granted, claim.owner)
            book.put(claim.owner, Booking(claim.plane, granted, granted))
    kept = {}
    for claim in ordered:
        granted, part = grantable(book, claim.plane, claim.floors, claim.owner)
        book.put(claim.owner, Booking(claim.plane, granted, granted))
        kept[claim.owner] = GrantResult(0.0 if claim.needs.cut and claim.floor_gbps > 0 else part)
    for claim in ordered:
        if claim.protected:
            lost = _reserve_protection(book, claim, kept[claim.owner].part)
            kept[claim.owner] = GrantResult(kept[claim.owner].part, lost)
    return kept


def _reserve_protection(book: BandwidthLedger, claim: BandwidthRequest, part: float) -> str:
    """Set aside what another failure would take, if there is room. Return why not, or ""."""
    if part < 1:
        return "the floor itself is not fully kept"
    if claim.needs.cut_by_failure:
        a, b = claim.needs.cut_by_failure[0]
        return f"one more failure would cut {a} from {b}"
    booking = claim.booking()
    short = book.overcommitted_ports(claim.plane, booking.whole, claim.owner)
    if short:
        owner, at = short[0]
        link = book.fabric.link_names(claim.plane, owner)[at]
        return f"{pluralized(len(short), 'link')} would lack room after one more failure, for example {link}"
    book.put(claim.owner, booking)
    return ""


def grantable(book: BandwidthLedger, plane: Plane, wanted: Demand, name: str) -> tuple[Demand, float]:
    """As much of `wanted` as each link has, replacing what `name` holds, and the smallest share among the links. A lost
    link only takes its own part of a floor; the parts on other links stay."""
    if not book.overcommitted_ports(plane, wanted, name):
        return wanted, 1.0
    granted = {
        owner: np.minimum(amount, np.maximum(book.free(plane, owner, name), 0.0)) for owner, amount in wanted.items()
    }
    part = min((_smallest_share(granted[owner], amount) for owner, amount in wanted.items()), default=1.0)
    return granted, 1.0 if part > 1 - 1e-9 else round(part, 9)


def _grantable_share(book: BandwidthLedger, plane: Plane, wanted: Demand, name: str) -> float:
    return grantable(book, plane, wanted, name)[1]


def _smallest_share(granted: Vector, wanted: Vector) -> float:
    asked = wanted > 0
    return float((granted[asked] / wanted[asked]).min()) if asked.any() else 1.0


def scaled_demand(need: Demand, factor: float) -> Demand:
    """The demand of a floor of that many GB/s. Nodes that share a vector share the product."""
    made: dict[int, Vector] = {}
    for vector in need.values():
        if id(vector) not in made:
            product = vector * factor
            product.flags.writeable = False
            made[id(vector)] = product
    return {owner: made[id(vector)] for owner, vector in need.items()} if factor > 0 else {}


def _unreachable(claim: BandwidthRequest, cut: tuple[tuple[str, str], ...], what: str) -> InsufficientBandwidth:
    each = sorted({(a, b) if b == "*" else (min(a, b), max(a, b)) for a, b in cut})
    pairs = [{"plane": claim.plane, "from": a, "to": b, "freeGbps": 0.0} for a, b in each[:BLOCKING_LINKS_MAX]]
    return InsufficientBandwidth(f"{pluralized(len(each), 'pair')} of members {what}", field="members", blocking=pairs)


def _blocking_link(
    book: BandwidthLedger, claim: BandwidthRequest, owner: str, at: int, wanted: float
) -> dict[str, Any]:
    link = book.fabric.link_names(claim.plane, owner)[at]
    return {
        "plane": claim.plane,
        "link": link,
        "freeGbps": round(float(book.free(claim.plane, owner, claim.owner)[at]), 6),
        "needGbps": round(float(wanted), 6),
        "owners": sorted(name for name in book.owners(link) if name != claim.owner)[:5],
    }
