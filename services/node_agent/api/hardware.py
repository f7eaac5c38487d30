"""The emulated hardware over HTTP: supernodes installed and removed, and the state of nodes, for tests and teaching.

This is not part of the control plane, which is not informed of it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from matrixcommon.api.list_params import Params
from matrixcommon.api.listing import page
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.hardware_names import NodeName, validate_supernode_name
from services.node_agent.access import NODES, SUPERNODES
from services.node_agent.contract import InstalledSupernode
from services.node_agent.fleet.fleet import Fleet


def hardware_routes(fleet: Fleet) -> APIRouter:
    """The routes over one fleet."""
    api = ResourceRoutes()
    _supernodes(api.of(SUPERNODES), fleet)
    _nodes(api.of(NODES), fleet)
    return api.router


def _supernodes(supernodes: KindRoutes, fleet: Fleet) -> None:
    def installed(name: str) -> InstalledSupernode:
        nodes = [node for node in fleet.nodes if node.supernode == name]
        powered = sum(fleet.nodes[node].powered for node in nodes)
        return InstalledSupernode(name=name, nodes=len(nodes), powered_nodes=powered)

    supernodes.list(lambda: [installed(name) for name in fleet.supernodes()])

    @supernodes.change("PUT")
    def install(name: str, validate_only: bool = False) -> InstalledSupernode:
        """Install a supernode of this fleet's shape, and switch its nodes on."""
        validate_supernode_name(name)
        if not validate_only:
            fleet.add_supernode(name)
        return installed(name)

    @supernodes.change("DELETE")
    def dismantle(name: str, validate_only: bool = False) -> None:
        if not validate_only:
            fleet.remove_supernode(name)


def _nodes(nodes: KindRoutes, fleet: Fleet) -> None:
    @nodes.ask("LIST")
    async def hardware(
        params: Params, powered: bool | None = None, status: Annotated[list[str] | None, Query()] = None
    ) -> dict[str, Any]:
        found = [name for name, node in fleet.nodes.items() if powered is None or node.powered == powered]
        if status is not None:
            found = [name for name in found if fleet.agent("resource", name).status in status]
        return page([_hardware_state(fleet, name) for name in found], params)

    @nodes.ask("GET")
    async def one_node(name: NodeName) -> dict[str, Any]:
        if name not in fleet.nodes:
            raise NotFound(f"this fleet has no node {name!r}", field="name")
        return _hardware_state(fleet, name)


def _hardware_state(fleet: Fleet, name: NodeName) -> dict[str, Any]:
    """The real state of a node's hardware and its agent."""
    node = fleet.nodes[name]
    agent = fleet.agent("resource", name)
    return {
        "name": name,
        "powered": node.powered,
        "agentsRun": node.agents_run,
        "codes": node.codes,
        "ports": node.ports,
        "silent": node.unreported_losses,
        "missing": sorted(node.missing),
        "tables": sorted(node.tables),
        "slowdown": node.slowdown,
        "messages": None if node.messages is None else asdict(node.messages),
        "epoch": agent.epoch,
        "status": agent.status,
        "stage": agent.stage,
        "holds": agent.holds,
        "generation": agent.generation,
    }
