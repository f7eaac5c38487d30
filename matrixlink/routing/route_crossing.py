"""route_uses_ports: whether a program that an agent holds sends anything over certain ports, of its own node or a
peer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.condition.port_order import PortOrder

PortsByOwner = Mapping[str, Collection[str]]
Stripes = list[dict[str, Any]]


def route_uses_ports(fabric: Fabric, node: str, body: Mapping[str, Any], out: PortsByOwner) -> bool:
    """`body` is a program's: stripes, and detours for peers and endpoints. `out` are ports by node or RDMA leaf."""
    plane = Plane(body["plane"])
    return any(_sends_over(fabric, node, plane, ways, out) for ways in (body, *body.get("peerings", ())))


def _sends_over(fabric: Fabric, node: str, plane: Plane, way: Mapping[str, Any], out: PortsByOwner) -> bool:
    if plane == Plane.VPC:
        return "vpc" in out.get(node, ()) and bool(way["stripes"])
    ways = _ProgramRoutes(way)
    pairs: Iterator[tuple[str, str]] = _ub(fabric.ports, node, ways) if plane == Plane.UB else _rdma(fabric, node, ways)
    return any(port in out.get(owner, ()) for owner, port in pairs)


class _ProgramRoutes:
    """The stripes that apply to each peer, own endpoint, and peer's endpoint."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.peers: list[str] = body["peers"]
        self._stripes: Stripes = body["stripes"]
        self._detours: dict[str, Stripes] = body["detours"]

    def own(self, endpoint: str) -> Stripes:
        return self._detours.get(endpoint, self._stripes)

    def to(self, peer: str, endpoint: str = "") -> Stripes:
        towards = self._detours.get(peer, self._stripes)
        return self._detours.get(f"{peer}-{endpoint}", towards) if endpoint else towards


def _ub(order: PortOrder, node: str, ways: _ProgramRoutes) -> Iterator[tuple[str, str]]:
    for peer in ways.peers:
        for stripe in ways.to(peer):
            for k, share in enumerate(stripe["spread"] or [1.0] * order.chips):
                if share > 0 and stripe["weight"] > 0:
                    port = f"ub-p{stripe['sub_plane']}-k{k:02d}"
                    yield node, port
                    yield peer, port
    for die in order.dies:
        for stripe in ways.own(die):
            yield node, f"{die}-p{stripe['sub_plane']}"
        for peer in ways.peers:
            for stripe in ways.to(peer, die):
                yield peer, f"{die}-p{stripe['sub_plane']}"


def _rdma(fabric: Fabric, node: str, ways: _ProgramRoutes) -> Iterator[tuple[str, str]]:
    order = fabric.ports
    for npu in order.npus:
        for stripe in ways.own(npu):
            yield node, f"rdma-{npu}-die{stripe['sub_plane']}"
        for peer in ways.peers:
            for stripe in ways.to(peer, npu):
                yield peer, f"rdma-{npu}-die{stripe['sub_plane']}"
    for peer in ways.peers:
        ours, theirs = fabric.leaves_at(node), fabric.leaves_at(peer)
        if ours == theirs or not (ours and theirs):  # under one leaf, or no longer in any graph
            continue
        for stripe in ways.to(peer):
            for spine, share in enumerate(stripe["spread"] or [1.0] * len(order.trunks)):
                if share > 0:
                    yield ours[stripe["sub_plane"]], order.trunks[spine]
                    yield theirs[stripe["sub_plane"]], order.trunks[spine]
