"""admit: may this slice have its floor on every link it needs, and if not, what stands in the way and what would fit.

Floors are booked in a ledger, link by link, at the most the hose model can ask (`routing.py`). The sum of floors on a
link never exceeds what the link has. When links are lost under floors already promised, `regrant` keeps as much of each
as fits, the better class first, and puts all of it back when the links return. Amounts are GB/s each way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from matrixlink.fabric.reservations import Ledger
from matrixresource.vocabulary.errors import InsufficientBandwidth

BLOCKING_MAX = 20
"""A refusal names at most this many links; it says how many there are."""


@dataclass(frozen=True, slots=True)
class FloorClaim:
    """A floor asked for: `need` is what one GB/s per NPU takes of each link."""

    owner: str
    plane: str
    need: Mapping[str, float]
    floor_gbps: float
    rank: tuple[Any, ...] = ()
    """Who keeps a floor when not all can: lowest first."""


def admit(ledger: Ledger, claim: FloorClaim) -> dict[str, float]:
    """What the floor takes of each link. Books nothing. Raises InsufficientBandwidth with what is in the way."""
    wanted = scaled(claim.need, claim.floor_gbps)
    short = [str(link) for link in ledger.short(wanted, claim.owner)]
    if not short:
        return wanted
    fits = claim.floor_gbps * fitting(ledger, claim.owner, wanted)
    lines = [_blocking(ledger, claim, link, wanted[link]) for link in short[:BLOCKING_MAX]]
    raise InsufficientBandwidth(
        f"a floor of {claim.floor_gbps:g} GB/s per NPU on plane {claim.plane} does not fit on {len(short)} links; "
        f"{fits:.4g} would",
        field="floorGbpsPerNpu",
        blocking=[{"plane": claim.plane, "links": len(short), "fitsFloorGbpsPerNpu": round(fits, 6)}, *lines],
    )


def regrant(ledger: Ledger, claims: Iterable[FloorClaim]) -> dict[str, float]:
    """Book every claim anew, in order of rank, each as far as it fits. The part of its floor each one keeps, 0 to 1."""
    ordered = sorted(claims, key=lambda claim: claim.rank)
    for claim in ordered:
        ledger.release(claim.owner)
    kept = {}
    for claim in ordered:
        wanted = scaled(claim.need, claim.floor_gbps)
        part = fitting(ledger, claim.owner, wanted)
        ledger.put(claim.owner, scaled(wanted, part))
        kept[claim.owner] = part
    return kept


def fitting(ledger: Ledger, owner: str, wanted: Mapping[str, float]) -> float:
    """The largest part of `wanted`, 0 to 1, that fits in place of what the owner holds. Rounded down to a millionth
    when it is not all, so that floats cannot tip a link over."""
    if not ledger.short(wanted, owner):
        return 1.0
    held = ledger.held(owner)
    part = min((ledger.residual(link) + held.get(link, 0)) / amount for link, amount in wanted.items() if amount > 0)
    return max(0.0, int(min(part, 1.0) * 1e6) / 1e6)


def scaled(need: Mapping[str, float], factor: float) -> dict[str, float]:
    return {link: amount * factor for link, amount in need.items() if amount * factor > 0}


def _blocking(ledger: Ledger, claim: FloorClaim, link: str, wanted: float) -> dict[str, Any]:
    held = float(ledger.held(claim.owner).get(link, 0))
    return {
        "plane": claim.plane,
        "link": link,
        "freeGbps": round(float(ledger.residual(link)) + held, 6),
        "needGbps": round(wanted, 6),
        "owners": sorted(str(owner) for owner in ledger.owners(link) if owner != claim.owner)[:5],
    }
