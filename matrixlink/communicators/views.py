"""Views of flows and tables: names instead of numbers, a page at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from matrixcommon.model.quantities import timestamp
from matrixlink.communicators.groups import TrafficGroup
from matrixlink.communicators.ub_traffic import UbTraffic
from matrixlink.contract.communicators import (
    CommunicatorTraffic,
    FlowChangeView,
    FlowView,
    ForwardingEntryView,
    ForwardingTableView,
    LastChange,
)
from matrixlink.forwarding.clos_shape import NONE, Ports
from matrixlink.forwarding.forwarding_tables import ForwardingTables

# ---- communicators --------------------------------------------------------------------------------------------------


def count_cut_transfers(traffic: UbTraffic, name: str) -> int:
    """How many transfers of a group have no path left."""
    return int((traffic.flows.by_transfer(name, traffic.flows.weight) == 0).sum())


def traffic_view(traffic: UbTraffic, name: str, group: TrafficGroup) -> CommunicatorTraffic:
    flows, ranks = traffic.flows.flows_of(name), len(group.ends)
    rates = traffic.flows.by_transfer(name, traffic.flows.rate)
    sent, taken = np.bincount(group.source, rates, ranks), np.bincount(group.target, rates, ranks)
    sends, takes = np.zeros((2, ranks), bool)
    sends[group.source], takes[group.target] = True, True
    by_rank = np.where(sends, sent, taken)[sends | takes]
    last = traffic.changes.get(name)
    return CommunicatorTraffic(
        ranks=ranks,
        transfers=len(rates),
        flows=flows.stop - flows.start,
        cut=count_cut_transfers(traffic, name),
        mean_gbps=round(float(by_rank.mean()), 6),
        slowest_gbps=round(float(by_rank.min()), 6),
        tables_version=traffic.tables.version,
        last_change=last and LastChange(
            event=last.event, at=timestamp(last.at), ports=last.ports, repathed=last.repathed, rerated=last.rerated
        ),
    )  # fmt: skip


def flow_name(number: int) -> str:
    """Names sort like numbers."""
    return f"f{number:06d}"


def flow_item(traffic: UbTraffic, name: str, group: TrafficGroup, number: int) -> dict[str, Any]:
    """One flow of a group, by its number in the group."""
    flow = traffic.flows.flows_of(name).start + number
    return FlowView(
        **_flow_ends(traffic, name, group, number),
        path=traffic.path_names(traffic.flows.path[flow]),
        gbps=round(float(traffic.flows.rate[flow]), 6),
        weight=round(float(traffic.flows.weight[flow]), 9),
    ).wire()


def change_items(traffic: UbTraffic, name: str, group: TrafficGroup) -> dict[str, int]:
    """The flows that the last event changed: their positions in its list, by name."""
    last = traffic.changes.get(name)
    return {} if last is None else {flow_name(int(number)): at for at, number in enumerate(last.flows)}


def change_item(traffic: UbTraffic, name: str, group: TrafficGroup, at: int) -> dict[str, Any]:
    last = traffic.changes[name]
    return FlowChangeView(
        **_flow_ends(traffic, name, group, int(last.flows[at])),
        path_before=traffic.path_names(last.path_before[at]),
        path=traffic.path_names(last.path_after[at]),
        gbps_before=round(float(last.rate_before[at]), 6),
        gbps=round(float(last.rate_after[at]), 6),
    ).wire()


def _flow_ends(traffic: UbTraffic, name: str, group: TrafficGroup, number: int) -> dict[str, Any]:
    flows, planes = traffic.flows.flows_of(name), traffic.shape.sub_planes
    ways = (flows.stop - flows.start) // (len(group.source) * planes)
    transfer, plane = divmod(number // ways, planes)
    return {
        "name": flow_name(number),
        "source": traffic.ends[group.ends[group.source[transfer]]],
        "target": traffic.ends[group.ends[group.target[transfer]]],
        "sub_plane": plane,
    }


# ---- forwarding tables ----------------------------------------------------------------------------------------------


class TableViews:
    """The tables of one supernode's chips, by chip name."""

    def __init__(self, traffic: UbTraffic) -> None:
        self._traffic = traffic
        self.topology = traffic.supernode.topology
        shape = traffic.shape
        self._whole = ForwardingTables(shape, traffic.drawn())
        self._l1 = {each: (p, traffic.supernode.slots[node]) for (node, p), each in traffic.l1.items()}
        self._l2 = {each: (p, k) for (p, k), each in traffic.l2.items()}

    @property
    def switches(self) -> list[str]:
        return [*self._l1, *self._l2]

    def has(self, switch: str) -> bool:
        return switch in self._l1 or switch in self._l2

    def _table(self, tables: ForwardingTables, switch: str) -> Ports:
        if switch in self._l1:
            return tables.l1[self._l1[switch]].ravel()
        plane, chip = self._l2[switch]
        return tables.l2[plane, 0, chip].ravel()

    def view(self, switch: str, version: str) -> ForwardingTableView:
        table, whole = self._table(self._traffic.tables, switch), self._table(self._whole, switch)
        is_l1 = switch in self._l1
        plane, number = self._l1[switch] if is_l1 else self._l2[switch]
        nowhere, elsewhere = int((table == NONE).sum()), int((table != whole).sum())
        return ForwardingTableView(
            name=switch,
            state="Whole" if not elsewhere else "Changed",
            kind="l1" if is_l1 else "l2",
            sub_plane=plane,
            node=self._traffic.nodes[number] if is_l1 else None,
            entries=len(table) - nowhere,
            aside=elsewhere - nowhere,
            nowhere=nowhere,
            version=version,
        )

    def entries(self, switch: str) -> list[dict[str, Any]]:
        """Every entry of a chip, one per endpoint."""
        traffic = self._traffic
        table, whole = self._table(traffic.tables, switch).tolist(), self._table(self._whole, switch).tolist()
        return [
            ForwardingEntryView(name=end, aside=port != default, **self._leads(switch, port)).wire()
            for end, port, default in zip(traffic.ends, table, whole, strict=True)
        ]

    def _leads(self, switch: str, port: int) -> dict[str, str]:
        """A port's name and what is at its other end."""
        traffic, shape = self._traffic, self._traffic.shape
        if port == NONE:
            return {}
        if switch in self._l2:
            plane, chip = self._l2[switch]
            node = traffic.nodes[port]
            return {"port": traffic.cable(node, plane, chip), "to": traffic.l1[node, plane]}
        plane, number = self._l1[switch]
        node = traffic.nodes[number]
        if port < shape.ends:
            return {
                "port": f"{node}.{traffic.port('end', plane, port)}",
                "to": traffic.ends[number * shape.ends + port],
            }
        chip = port - shape.ends
        return {"port": traffic.cable(node, plane, chip), "to": traffic.l2[plane, chip]}
