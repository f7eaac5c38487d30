"""Load on the emulated ports, over HTTP: what workloads put there, and what of it moves.

As with faults, the control plane is reported nothing: it reads the counters that agents report.
"""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.resource_key import name_of, project_of, reference
from matrixcommon.model.resource_model import ResourceView
from services.node_agent.access import TRAFFIC
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.network.traffic_patterns import Load


class LoadView(ResourceView):
    """A load, and what moves on the slices it goes by (all loads on them together), GB/s over all members."""

    state: str = "Offered"
    load: Load
    slices: list[str]
    members: int
    offered_gbps: float
    sent_gbps: float
    dropped_gbps: float


def traffic_routes(fleet: Fleet) -> APIRouter:
    api = ResourceRoutes()
    traffic = api.of(TRAFFIC)
    traffic.list(lambda: [_seen(name) for name in fleet.traffic.loads])

    @traffic.change("PUT")
    def put_load(name: str, body: Load, validate_only: bool = False) -> LoadView:
        if (body.slice is None) == (body.instance is None):
            raise InvalidField("give either a slice, or an instance and a plane", field="slice")
        if body.target is not None and body.pattern != "incast":
            raise InvalidField("only an incast has a target", field="target")
        if body.target is not None and body.target not in fleet.nodes:
            raise InvalidField(f"this fleet has no node {body.target}", field="target")
        checked_resource_name(name)
        if validate_only:
            return _view(name, body)
        fleet.offer(name, body)
        return _seen(name)

    @traffic.change("DELETE")
    def remove_load(name: str, validate_only: bool = False) -> None:
        _known(name)
        if not validate_only:
            fleet.withdraw_load(name)

    def _known(name: str) -> Load:
        if name not in fleet.traffic.loads:
            raise NotFound(f"there is no load named {name[:80]!r}", field="name")
        return fleet.traffic.loads[name]

    def _seen(name: str) -> LoadView:
        return _view(name, _known(name))

    traffic.get(_seen)

    def _view(name: str, load: Load) -> LoadView:
        rates = fleet.traffic.rates()
        current = fleet.traffic.loads_of(load)
        moving = [each for slice in current for each in rates.slices.get(slice, {}).values()] if rates else []
        senders = sum(len(tables) - (load.pattern == "incast") for tables in current.values() if len(tables) > 1)
        return LoadView(
            name=name_of(name),
            project=project_of(name),
            load=load,
            slices=[reference(slice, project_of(name)) for slice in sorted(current)],
            members=sum(map(len, current.values())),
            offered_gbps=round(senders * load.gbps_per_npu * fleet.spec.node.npus, 6),
            sent_gbps=round(sum(each[0] for each in moving), 6),
            dropped_gbps=round(sum(each[2] for each in moving), 6),
        )

    return api.router
