"""what_if: the effect on slices if parts of the fabric failed, were drained or repaired.

The fabric's condition and the ledger are copied, changed as asked, and evaluated with the same functions that decide
when it happens; nothing real changes. Only slices whose ports would change are evaluated, and slices on the same planes
that have less than they were promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.admission.admission import BandwidthRequest, GrantResult, reallocate
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.admission.bandwidth_ledger import Booking
from matrixlink.admission.slice_index import SliceState
from matrixlink.contract.what_if import CutPair, OverfullLink, PlaneEffect, SliceEffect, WhatIfRequest, WhatIfView
from matrixlink.fabric.condition.elements import Ports, all_ports, count_by_plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.qos import class_of_rank
from matrixlink.routing.routing import choose_routes

CUT_PAIRS_MAX = 20
OVERFULL_LINKS_MAX = 100

Overfull = tuple[float, float, str]
"""Floors, capacity (GB/s), and the link."""


@dataclass(frozen=True)
class Scenario:
    """A hypothetical fabric, and the ports in which it differs."""

    fabric: Fabric
    changed: Ports = field(default_factory=dict)


def what_if(promises: AdmissionState, asked: WhatIfRequest) -> WhatIfView:
    """Answer a what-if. Raises InvalidField for elements that the fabric does not have."""
    if not (asked.fail or asked.drain or asked.repair):
        raise InvalidField("name at least one element to fail, drain or repair", field="fail")
    supposed = apply_scenario(promises.fabric, asked)
    return evaluate(promises, supposed, asked)


def apply_scenario(fabric: Fabric, asked: WhatIfRequest) -> Scenario:
    """A copy of the fabric, changed as asked: repairs first, so that an element named twice has failed."""
    other = fabric.copy()
    repaired = all_ports(fabric, asked.repair, "repair")
    failed, drained = all_ports(fabric, asked.fail, "fail"), all_ports(fabric, asked.drain, "drain")
    for owner, ports in repaired.items():
        other.set_ports(owner, {port: gbps for port, gbps in fabric.degraded_ports(owner).items() if port not in ports})
    for owner, ports in failed.items():
        other.set_ports(owner, {**other.degraded_ports(owner), **dict.fromkeys(ports, 0.0)})
    out = {owner: set(ports) - repaired.get(owner, set()) for owner, ports in fabric.all_drained().items()}
    for owner, ports in drained.items():
        out.setdefault(owner, set()).update(ports)
    other.set_drained(out)
    return Scenario(other, changed_ports(fabric, other))


def changed_ports(fabric: Fabric, other: Fabric) -> Ports:
    """The ports of which routes may use a different amount in the two fabrics."""
    found: Ports = {}
    for owner in fabric.touched() | other.touched():
        before, after = fabric.unavailable_ports(owner), other.unavailable_ports(owner)
        if ports := {port for port in {*before, *after} if before.get(port) != after.get(port)}:
            found[owner] = ports
    return found


def evaluate(promises: AdmissionState, supposed: Scenario, asked: WhatIfRequest | None = None) -> WhatIfView:
    """The effects of a scenario on all slices."""
    asked = asked or WhatIfRequest()
    fabric = supposed.fabric
    affected = [terms for terms in promises.slices if not terms.withdrawing and _is_rerouted(promises, supposed, terms)]
    planes = {terms.plane for terms in affected}
    names = {terms.name for terms in affected} | {name for plane in planes for name in promises.degraded_slices(plane)}
    concerned = [promises.slices[name] for name in sorted(names)]
    claims = [promises.claim(terms, fabric) for terms in concerned]
    book = promises.ledger.copy(fabric, fabric.usable_rates)
    kept = reallocate(book, claims, promises.healthy_ledger)
    moved = {terms.name for terms in affected}
    effects = [
        _slice_effect(promises, fabric, terms, claim, kept[terms.name], terms.name in moved)
        for terms, claim in zip(concerned, claims, strict=True)
    ]
    overfull = _overfull_links(promises, fabric, claims)
    return WhatIfView(
        fail=asked.fail,
        drain=asked.drain,
        repair=asked.repair,
        floors_hold=not any(effect.broken for effect in effects),
        planes=[_plane_effect(plane, supposed.changed, promises, effects, overfull[plane]) for plane in Plane],
        slices=effects,
        links_overfull=_fullest_links(overfull),
    )


def _is_rerouted(promises: AdmissionState, supposed: Scenario, terms: SliceState) -> bool:
    concerned = promises.owners(terms.plane, promises.reached(terms))
    if not any(owner in supposed.changed for owner in concerned):
        return False
    return promises.impaired_ports_of(terms) != promises.impaired_ports_of(terms, supposed.fabric)


def _slice_effect(
    promises: AdmissionState, fabric: Fabric, terms: SliceState, claim: BandwidthRequest, kept: GrantResult, moved: bool
) -> SliceEffect:
    rerouted, cut = False, list[tuple[str, str]]()
    if moved:
        before = choose_routes(promises.fabric, terms.plane, terms.members)
        after = choose_routes(fabric, terms.plane, terms.members)
        cut = [pair for pair in after.cut if pair not in set(before.cut)]
        rerouted = before.nodes != after.nodes
    return SliceEffect(
        slice=terms.name,
        project=terms.project,
        plane=terms.plane,
        qos_class=class_of_rank(terms.rank[0]),
        floor_gbps_per_npu=terms.floor_gbps,
        kept_before_gbps_per_npu=round(terms.floor_gbps * terms.kept, 6),
        kept_after_gbps_per_npu=round(terms.floor_gbps * kept.part, 6),
        broken=kept.part < terms.kept and terms.floor_gbps > 0,
        rerouted=rerouted,
        pairs_cut=len(cut),
        cut=[CutPair(a=a, b=b) for a, b in cut[:CUT_PAIRS_MAX]],
        protection_lost=kept.unprotected if claim.protected and not terms.unprotected else "",
    )


def _overfull_links(
    promises: AdmissionState, fabric: Fabric, claims: list[BandwidthRequest]
) -> dict[Plane, list[Overfull]]:
    """By plane, the links whose floors, in full, would exceed their capacity."""
    book = promises.ledger.copy(fabric, fabric.usable_rates)
    for claim in claims:
        floors = claim.floors
        book.put(claim.owner, Booking(claim.plane, floors, floors))
    found: dict[Plane, list[Overfull]] = {plane: [] for plane in Plane}
    for plane, owner in sorted({(claim.plane, owner) for claim in claims for owner in claim.needs.need}):
        total, capacity = book.total(plane, owner), fabric.usable_rates(plane, owner)
        over = total > capacity + 1e-9 * np.maximum(capacity, 1.0)
        if over.any():
            links = fabric.link_names(plane, owner)
            found[plane] += [(float(total[at]), float(capacity[at]), links[at]) for at in np.flatnonzero(over)]
    return found


def _fullest_links(overfull: dict[Plane, list[Overfull]]) -> list[OverfullLink]:
    """The worst of them: dead links first, then by how far their floors exceed their capacity."""
    ordered = sorted(
        (-(floors / gbps if gbps else np.inf), link, floors, gbps, plane)
        for plane, links in overfull.items()
        for floors, gbps, link in links
    )
    return [
        OverfullLink(
            link=link, plane=plane, floors_gbps=round(floors, 6), gbps=gbps,
            share=round(-share, 6) if gbps else None,
        )
        for share, link, floors, gbps, plane in ordered[:OVERFULL_LINKS_MAX]
    ]  # fmt: skip


def _plane_effect(
    plane: Plane, changed: Ports, promises: AdmissionState, effects: list[SliceEffect], overfull: list[Overfull]
) -> PlaneEffect:
    here = [effect for effect in effects if effect.plane == plane]
    npus = {effect.slice: promises.npus(promises.slices[effect.slice]) for effect in here}
    return PlaneEffect(
        plane=plane,
        ports_changed=count_by_plane(promises.fabric, changed)[plane],
        slices_affected=len(here),
        slices_rerouted=sum(effect.rerouted for effect in here),
        floors_broken=sum(effect.broken for effect in here),
        floors_before_gbps=round(sum(each.kept_before_gbps_per_npu * npus[each.slice] for each in here), 6),
        floors_after_gbps=round(sum(each.kept_after_gbps_per_npu * npus[each.slice] for each in here), 6),
        pairs_cut=sum(effect.pairs_cut for effect in here),
        links_overfull=len(overfull),
        protections_lost=sum(bool(effect.protection_lost) for effect in here),
    )
