"""The supernode drawn and counted in text, from the spec: what README.md shows and a test compares with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import networkx as nx

from matrixresource.topology.supernode import Supernode


def picture(supernode: Supernode | None = None) -> str:
    """The cabinet row, the wiring of one sub-plane and the three tables of vertices and links, as Markdown."""
    sn = supernode or Supernode()
    tables = [_ub_table(sn, level) for level in ("package", "die")] + [_others_table(sn)]
    parts = ["```text", *_cabinets(sn), "", *_sub_plane(sn), "```", ""]
    for title, table in zip(("UB plane, packages", "UB plane, dies", "RDMA and VPC planes"), tables, strict=True):
        parts += [f"**{title}**", "", *table, ""]
    return "\n".join(parts)


def _cabinets(sn: Supernode) -> list[str]:
    spec = sn.spec
    compute, switching = sn.compute_cabinets(), sn.communication_cabinets()
    lines = [f"{spec.model}: {len(compute)} compute cabinets and {len(switching)} communication cabinets"]
    rows = (compute[: len(compute) // 2], compute[len(compute) // 2 :])
    lines += ["  " + "  ".join(f"[{name}]" for name in row) for row in rows]
    lines.append(
        f"    each {spec.cabinet.nodes} nodes x ({spec.node.npus} NPUs, {spec.node.cpus} CPUs, "
        f"{spec.node.l1_switches} L1 switches, {spec.node.qingtian_cards} Qingtian card)"
    )
    lines.append("  " + "  ".join(f"[{name}]" for name in switching))
    each = spec.supernode.l2_switches // len(switching)
    ub = spec.ub
    lines.append(
        f"    each {each} L2 switches in {ub.bus_devices_per_cabinet} bus devices of {ub.bus_device_ports} ports"
    )
    return lines


def _sub_plane(sn: Supernode) -> list[str]:
    spec = sn.spec
    node = sn.nodes()[0]
    l2_first, l2_last = sn.l2_switches(0)[0], sn.l2_switches(0)[-1]
    rate = f"{spec.ub.uplink_gbps:g}"
    return [
        f"One of the {spec.ub.sub_planes} sub-planes (rates in GB/s each way)",
        "",
        f"   {l2_first} ... {l2_last}      {spec.ub.l2_per_sub_plane} L2 switches, {spec.ub.l2_ports} ports of {rate}",
        "        |    \\   /    |             every L1 to every L2",
        f"   {sn.l1_switches(0)[0]} ... {sn.l1_switches(0)[-1]}    {spec.supernode.nodes} L1 switches, one per node,",
        f"     |        |                     {spec.ub.l2_per_sub_plane} uplinks x {rate} = {spec.ub.l1_uplink_gbps:g}",
        f"   {spec.node.dies} dies   {spec.node.cpus} CPUs               {spec.die.ub_link_gbps:g} per die, "
        f"{spec.cpu.ub_link_gbps:.2f} per CPU",
        f"   of {node}",
    ]


def _ub_table(sn: Supernode, level: str) -> list[str]:
    graph = sn.graph(level, "ub")
    return [*_vertices(_kinds(graph)), "", *_links(graph)]


def _others_table(sn: Supernode) -> list[str]:
    graph = nx.compose(sn.graph("die", "rdma"), sn.graph("die", "vpc"))
    kinds = {kind: count for kind, count in _kinds(graph).items() if kind != "die"}
    return [*_vertices(Counter(kinds)), "", *_links(graph)]


def _kinds(graph: nx.Graph) -> Counter[str]:
    return Counter(kind for _, kind in graph.nodes(data="kind"))


def _vertices(kinds: Counter[str]) -> list[str]:
    rows = [(kind, f"{count:,}") for kind, count in kinds.items()]
    return _table(("vertices", "count"), [*rows, ("total", f"{kinds.total():,}")])


def _links(graph: nx.Graph) -> list[str]:
    every = [about for _, _, about in graph.edges(data=True)]
    order = ("npu-l1", "die-l1", "cpu-l1", "l1-l2", "die-die", "die-leaf", "leaf-spine", "qingtian-fabric")
    found = Counter(about["kind"] for about in every)
    count = Counter({kind: found[kind] for kind in order if kind in found})
    rate = {about["kind"]: about["capacity_gbps"] for about in every}
    rows = [(kind, f"{n:,}", f"{rate[kind]:.5g}", f"{n * rate[kind]:,.0f}") for kind, n in count.items()]
    return _table(
        ("links", "count", "GB/s each way", "together"),
        [*rows, ("total", f"{count.total():,}", "", "")],
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
