"""Load on the emulated ports, over HTTP: what workloads put there, and what of it moves.

As with faults, the control plane is reported nothing: it reads the counters that agents report.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.listing import Params, ValidateOnly, page
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of, reference
from matrixcommon.model.resource_model import ApiModel
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.network.traffic_patterns import Load


class LoadView(ApiModel):
    """A load, and what moves on the slices it goes by (all loads on them together), GB/s over all members."""

    name: str
    project: str = DEFAULT_PROJECT
    load: Load
    slices: list[str]
    members: int
    offered_gbps: float
    sent_gbps: float
    dropped_gbps: float


def traffic_routes(fleet: Fleet) -> APIRouter:
    api = APIRouter(prefix="/v1")

    @api.get("/traffic")
    async def list_loads(params: Params) -> dict[str, Any]:
        return page([_seen(name).wire() for name in fleet.traffic.loads], params)

    @api.get("/traffic/{name}")
    async def get_load(name: str) -> LoadView:
        return _seen(name)

    @api.put("/traffic/{name}")
    async def put_load(name: str, body: Load, caller: CallerOf, validate_only: ValidateOnly = False) -> LoadView:
        if (body.slice is None) == (body.instance is None):
            raise InvalidField("give either a slice, or an instance and a plane", field="slice")
        if body.target is not None and body.pattern != "incast":
            raise InvalidField("only an incast has a target", field="target")
        if body.target is not None and body.target not in fleet.nodes:
            raise InvalidField(f"this fleet has no node {body.target}", field="target")
        checked_resource_name(name)
        _, load = caller.claim(name, body)
        for other in (load.slice, load.instance):
            if other is not None:
                caller.check(other)
        if validate_only:
            return _view(name, load)
        fleet.offer(name, load)
        return _seen(name)

    @api.delete("/traffic/{name}")
    async def remove_load(name: str, validate_only: ValidateOnly = False) -> Response:
        _known(name)
        if not validate_only:
            fleet.withdraw_load(name)
        return Response(status_code=204)

    def _known(name: str) -> Load:
        if name not in fleet.traffic.loads:
            raise NotFound(f"there is no load named {name[:80]!r}", field="name")
        return fleet.traffic.loads[name]

    def _seen(name: str) -> LoadView:
        return _view(name, _known(name))

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

    return api
