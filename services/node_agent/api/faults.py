"""Faults on the emulated hardware, over HTTP. This is not part of the control plane, which is not informed of them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter

from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from matrixcommon.model.hardware_names import NodeName, validate_resource_name
from matrixresource.agent.fault_catalogue import (
    CABINET_KINDS,
    FAULT_KINDS,
    PORT_KINDS,
    SEVERITIES,
    SWITCH_KINDS,
    check_parameters,
)
from matrixresource.agent.hardware import EmulatedNode, InjectedFault, missing_part
from matrixresource.contract.nodes import IN_PLACE
from matrixresource.nodes.expected_inventory import part_names
from services.node_agent.access import FAULTS
from services.node_agent.contract import FaultRequest, InjectedFaultView
from services.node_agent.fleet.fleet import Fleet


def fault_routes(fleet: Fleet) -> APIRouter:
    """The routes over one fleet's faults."""
    api = ResourceRoutes()

    @api.router.get("/fault-kinds")
    async def kinds() -> dict[str, str]:
        return FAULT_KINDS

    _faults(api.of(FAULTS), fleet)
    return api.router


def _faults(faults: KindRoutes, fleet: Fleet) -> None:
    def view_of(fault: InjectedFault) -> InjectedFaultView:
        return InjectedFaultView(
            **fault.model_dump(), state="Ended" if fault.name in fleet.ended_faults else "Injected"
        )

    def existing(name: str) -> InjectedFault:
        if name not in fleet.faults:
            raise NotFound(f"fault {name!r} does not exist", field="name")
        return fleet.faults[name]

    faults.list(lambda: [view_of(fault) for fault in fleet.faults.values()])
    faults.get(lambda name: view_of(existing(name)))

    @faults.change("PUT")
    def inject(name: str, body: FaultRequest, validate_only: bool = False) -> InjectedFaultView:
        fault = InjectedFault(name=validate_resource_name(name), **body.model_dump())
        _check(fault, fleet)
        current = fleet.faults.get(name)
        if current is None:
            if not validate_only:
                fleet.fences.check()
                fleet.inject(fault)
        elif current != fault:
            raise Conflict(f"fault {name!r} exists with other values: {current.kind} on {current.target}", field="name")
        return view_of(fault)

    @faults.change("DELETE")
    def clear(name: str, validate_only: bool = False) -> None:
        existing(name)
        if not validate_only:
            fleet.fences.check()
            fleet.clear(name)


def _check(fault: InjectedFault, fleet: Fleet) -> None:
    """Raise InvalidField or NotFound if the fault cannot be injected."""
    check_parameters(fault.kind, fault.parameters)
    if fault.kind in SWITCH_KINDS:
        if fault.target not in (there := fleet.switches()):
            like = f"; use one like {max(there)}" if there else ""
            raise NotFound(f"this fleet has no switch {fault.target!r}{like}", field="target")
        return
    if fault.kind in CABINET_KINDS:
        if fault.target not in (cabinets := {node.cabinet for node in fleet.nodes}):
            like = f"; use one like {min(cabinets)}" if cabinets else ""
            raise NotFound(f"this fleet has no cabinet {fault.target!r}{like}", field="target")
        return
    if fault.target not in fleet.nodes:
        raise NotFound(f"this fleet has no node {fault.target!r}", field="target")
    for field, satisfied, wanted in _conditions(fault, fleet.nodes[NodeName(fault.target)]):
        if not satisfied:
            raise InvalidField(wanted, field=f"parameters.{field}")


def _conditions(fault: InjectedFault, node: EmulatedNode) -> Iterator[tuple[str, bool, str]]:
    """The conditions on the parameters of a fault: (field, whether it is satisfied, error message)."""
    ports, parts, npus, dies = node.ports_with_cables, part_names(node.spec), node.spec.node.npus, node.spec.npu.dies
    given, kind = fault.parameters, fault.kind
    port, peer, share = given.get("port"), given.get("peer"), given.get("share")
    if kind == "cable-moved":
        like = ", ".join([*ports[:2], *ports[-1:]])
        yield "port", port in ports, f"{port!r} is not a port of {node.name} with a cable; use one like {like}"
        yield "peer", isinstance(peer, str) and 0 < len(peer) <= 80, "must name the port that is connected there now"
    elif kind in PORT_KINDS:
        known = port in ports or bool(fnmatch.filter(ports, str(port)))
        like = f"{', '.join(ports[:2])}, or a pattern like ub-p*-k0?"
        yield "port", known, f"{port!r} is not a port of {node.name} with a cable; use one like {like}"
    if kind in ("link-degraded", "link-slow"):
        fits = isinstance(share, int | float) and 0 <= share < 1
        yield "share", fits, "must be the remaining share of the rate, at least 0 and below 1"
    yield "slice", isinstance(given.get("slice", ""), str), "must be the name of a slice, or empty for all slices"
    if kind == "link-flapping":
        yield "periodS", _in_range(given.get("periodS", 20), 2, 86_400), "must be from 2 to 86400 seconds"
    if kind == "slow-node":
        yield "factor", _in_range(given.get("factor", 2), 1, 1000), "must be a slowdown factor from 1 to 1000"
    if kind in ("messages-lost", "messages-doubled"):
        yield "share", _in_range(given.get("share", 1), 0, 1), "must be a share of the reports from 0 to 1"
    if kind == "messages-delayed":
        yield "delayS", _in_range(given.get("delayS", 20), 0, 3600), "must be from 0 to 3600 seconds"
    if kind == "hbm-fault":
        yield "handling", given.get("handling", "isolate") in ("isolate", "restart"), "must be isolate or restart"
    if kind in ("npu-fault", "hbm-fault", "rdma-nic-fault"):
        yield "npu", given.get("npu", 0) in range(npus), f"must be the number of an NPU, 0 to {npus - 1}"
        wanted = f"must be the number of a die, 0 to {dies - 1}" if dies > 1 else "must be 0: its NPUs have one die"
        yield "die", given.get("die", 0) in range(dies), wanted
    if kind == "stage-failure":
        stage, why = given.get("stage"), given.get("why", "")
        yield "stage", isinstance(stage, str) and 0 < len(stage) <= 40, "must be a stage of `node_stages.yaml`"
        yield "why", isinstance(why, str) and len(why) <= 200, "must have at most 200 characters"
    for word in ("component", "code"):
        text = str(given.get(word, "x"))
        yield word, 0 < len(text) <= 40 and text.isprintable(), "must have 1 to 40 printable characters"
    ends = (*IN_PLACE, "none")
    yield "endsWith", given.get("endsWith", "none") in ends, f"must be one of {', '.join(ends)}"
    yield "severity", given.get("severity", "hint") in SEVERITIES, f"must be one of {', '.join(SEVERITIES)}"
    if kind == "missing-part":
        wanted = f"nodes have no part {missing_part(fault)!r}; parts are npu5, npu5-die1, cpu3, dimm7 and the ports"
        yield "part", missing_part(fault) in parts, wanted


def _in_range(given: Any, least: float, most: float) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and least <= given <= most
