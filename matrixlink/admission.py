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
    cut: tuple[tuple[str, str], ...] = ()
    """Members between which nothing is left: no floor can be promised."""
    rank: tuple[Any, ...] = ()
    """Who keeps a floor when not all can: lowest first."""


def admit(ledger: Ledger, claim: FloorClaim) -> dict[str, float]:
    """What the floor takes of each link. Books nothing. Raises InsufficientBandwidth with what is in the way."""
    wanted = scaled(claim.need, claim.floor_gbps)
    if claim.cut and claim.floor_gbps > 0:
        pairs = [{"plane": claim.plane, "from": a, "to": b, "freeGbps": 0.0} for a, b in claim.cut[:BLOCKING_MAX]]
        raise InsufficientBandwidth(
            f"{len(claim.cut)} pairs of members cannot reach each other on plane {claim.plane}",
            field="members",
            blocking=pairs,
        )
    short = [str(link) for link in ledger.short(wanted, claim.owner)]
    if not short:
        return wanted
    fits = claim.floor_gbps * grantable(ledger, claim.owner, wanted)[1]
    lines = [_blocking(ledger, claim, link, wanted[link]) for link in short[:BLOCKING_MAX]]
    raise InsufficientBandwidth(
        f"a floor of {claim.floor_gbps:g} GB/s per NPU on plane {claim.plane} does not fit on {len(short)} links; "
        f"{fits:.4g} would",
        field="floorGbpsPerNpu",
        blocking=[{"plane": claim.plane, "links": len(short), "fitsFloorGbpsPerNpu": round(fits, 6)}, *lines],
    )


def regrant(ledger: Ledger, claims: Iterable[FloorClaim]) -> dict[str, float]:
    """Book every claim anew, in order of rank, on each link as far as it fits. The part of its floor that each one
    keeps on its worst link, 0 to 1."""
    ordered = sorted(claims, key=lambda claim: claim.rank)
    for claim in ordered:
        ledger.release(claim.owner)
    kept = {}
    for claim in ordered:
        granted, part = grantable(ledger, claim.owner, scaled(claim.need, claim.floor_gbps))
        ledger.put(claim.owner, granted)
        kept[claim.owner] = 0.0 if claim.cut and claim.floor_gbps > 0 else part
    return kept


def grantable(ledger: Ledger, owner: str, wanted: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """As much of `wanted` as each link has, in place of what the owner holds, and the least part that any link has. A
    lost link takes its own share of a floor and leaves what the others carry alone."""
    held = ledger.held(owner)
    granted, kept = {}, 1.0
    for link, amount in wanted.items():
        free = max(0.0, float(ledger.residual(link) + held.get(link, 0)))
        granted[link] = min(amount, free)
        kept = min(kept, granted[link] / amount)
    return granted, 1.0 if kept > 1 - 1e-9 else round(kept, 9)


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
