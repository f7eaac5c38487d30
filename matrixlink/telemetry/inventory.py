"""Views of planes, switches and links: what the topology has, what agents reported, what slices were promised.

Everything here is computed on request; only links that were once reported below their rate have rows of their own (for
watches). Lists of links are narrowed by plane and node before they are built, since there are thirteen thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from matrixcommon.api.list_params import ListParams
from matrixcommon.api.listing import names_on_page, page
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.contract.inventory import LinkView, PlaneSummary, QosClassView, SwitchView
from matrixlink.fabric.condition.fabric import DEGRADED, DOWN, UP, health
from matrixlink.model.qos import TERMS
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import LinkRow
from matrixresource.topology import Link, Supernode, Vertex


class FabricInventory:
    """The views of the fabric that the routes return."""

    def __init__(self, slice_controller: SliceController) -> None:
        self._slice_controller = slice_controller
        self._fabric = slice_controller.fabric

    # -- links -------------------------------------------------------------------------------------------------------

    def links(self, plane: str | None, node: str | None) -> list[LinkView]:
        return [LinkView.from_stored(item) for item in self._link_items(self._selected_links(plane, node))]

    def link_page(self, plane: str | None, node: str | None, params: ListParams, narrowed: bool) -> dict[str, Any]:
        """One page of links in wire form. Unless a filter or an order needs all of them (`narrowed`), only the page's
        own links are evaluated."""
        if narrowed:
            return page(self._link_items(self._selected_links(plane, node)), params)
        names, rest = names_on_page(partial(self._names, plane, node), params)
        return {"items": self._link_items([self._fabric.link(name) for name in names]), **rest}

    def _selected_links(self, plane: str | None, node: str | None) -> list[Link]:
        check_plane(plane)
        return self._fabric.links(node, plane)

    def _names(self, plane: str | None, node: str | None, after: str) -> Iterable[str]:
        """The names that come after that one, in order."""
        if node is not None:
            return sorted(link.name for link in self._selected_links(plane, node) if link.name > after)
        check_plane(plane)
        return self._fabric.link_names_after(after, plane)

    def _link_items(self, links: list[Link]) -> list[dict[str, Any]]:
        with self._slice_controller.store.reading() as session:
            known = {row.name: row.view().wire() for row in self._slice_controller.store.links(session)}
        return [self._link_item(link, known.get(link.name)) for link in links]

    def link(self, name: str) -> LinkView:
        with self._slice_controller.store.reading() as session:
            row = session.get(LinkRow, name)
            return LinkView.from_stored(self._link_item(self._fabric.link(name), row.view().wire() if row else None))

    def _link_item(self, link: Link, known: dict[str, Any] | None) -> dict[str, Any]:
        gbps = self._fabric.capacity(link.name) if link.port in self._fabric.built else link.capacity_gbps
        item: dict[str, Any] = {
            "name": link.name, "project": "default", "labels": {}, "generation": 1, "etag": '"0"', "conditions": [],
            "createdAt": "", "updatedAt": "", "plane": link.plane, "kind": link.kind, "ends": list(link.ends),
            "builtGbps": link.capacity_gbps, "reason": "",
        }  # fmt: skip
        if link.node is not None:
            item["node"] = link.node
        if link.sub_plane is not None:
            item["subPlane"] = link.sub_plane
        floors = round(float(self._slice_controller.promises.ledger.booked(link.name)), 6)
        now = {"gbps": gbps, "state": health(gbps, link.capacity_gbps), "floorsGbps": floors}
        return item | (known or {}) | now | {"drained": link.port in self._fabric.drained(link.name.partition(".")[0])}

    # -- switches ----------------------------------------------------------------------------------------------------

    def switches(self) -> list[SwitchView]:
        """Every L1 and L2 chip of the UB plane and every RDMA leaf and spine."""
        lost = self._impaired_by_switch()
        return [
            self._switch_view(supernode, switch, lost)
            for supernode in self._fabric.supernodes.values()
            for switch in supernode.switches()
        ]

    def _impaired_by_switch(self) -> dict[str, Counter[str]]:
        """By UB switch, how many ports leading to it are down and how many degraded."""
        lost: dict[str, Counter[str]] = {}
        for node in self._fabric.nodes():
            for port, gbps in self._fabric.degraded_ports(node).items():
                if not self._fabric.has_link(node, port):
                    continue
                link = self._fabric.link(f"{node}.{port}")
                for end in link.ends:
                    lost.setdefault(end, Counter())[health(gbps, link.capacity_gbps)] += 1
        return lost

    def _switch_view(self, supernode: Supernode, switch: Vertex, lost: dict[str, Counter[str]]) -> SwitchView:
        ports = sum(map(len, supernode.ports_of(switch.name).values()))
        below = lost.get(switch.name, Counter())
        state = DOWN if below[DOWN] >= ports else DEGRADED if below.total() else UP
        return SwitchView(
            name=switch.name,
            plane=Plane(switch.plane or "ub"),
            kind=switch.kind,
            cabinet=switch.cabinet,
            node=switch.node,
            sub_plane=switch.sub_plane,
            ports=ports,
            ports_down=below[DOWN],
            ports_degraded=below[DEGRADED],
            state=state,
        )

    # -- planes and classes -------------------------------------------------------------------------------------------

    def planes(self) -> list[PlaneSummary]:
        with self._slice_controller.store.reading() as session:
            slices = Counter(row.plane for row in self._slice_controller.store.slices(session))
        below = self._impaired_by_plane()
        return [self._plane_view(plane, below[plane], slices[plane]) for plane in Plane]

    def _impaired_by_plane(self) -> dict[Plane, Counter[str]]:
        below: dict[Plane, Counter[str]] = {plane: Counter() for plane in Plane}
        for node in self._fabric.nodes():
            for port, gbps in self._fabric.degraded_ports(node).items():
                below[self._fabric.ports.plane_of[port]][health(gbps, self._fabric.built[port])] += 1
        return below

    def _plane_view(self, plane: Plane, below: Counter[str], slices: int) -> PlaneSummary:
        model = self._slice_controller.promises.planes[plane]
        links = sum(supernode.link_counts[str(plane)] for supernode in self._fabric.supernodes.values())
        return PlaneSummary(
            name=str(plane),
            state=DEGRADED if below.total() else UP,
            sub_planes=model.sub_planes,
            uplink_gbps=model.uplink_gbps,
            endpoint_gbps=model.endpoint_gbps,
            npu_gbps=model.npu_gbps,
            latency_us=model.latency_us,
            switches_between_nodes=model.switches,
            qos_mechanism=model.qos_mechanism,
            links=links,
            links_down=below[DOWN],
            links_degraded=below[DEGRADED],
            slices=slices,
        )


def qos_classes() -> list[QosClassView]:
    return [
        QosClassView(
            name=str(qos), state="Offered", weight=terms.weight, floor=terms.floor, rank=terms.rank,
            sentence=terms.sentence,
        )
        for qos, terms in TERMS.items()
    ]  # fmt: skip


def check_plane(plane: str | None) -> None:
    """Raises InvalidField."""
    if plane is not None and plane not in set(Plane):
        raise InvalidField(f"{plane[:40]!r} is not a plane; use ub, rdma or vpc", field="plane")
