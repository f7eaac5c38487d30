"""Load on the emulated ports, over HTTP: the loads that workloads offer, and the rates that they get.

As with faults, the control plane is not informed: it reads the counters that agents report.
"""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.resource_key import name_of, project_of, reference_to
from services.node_agent.access import TRAFFIC
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.network.traffic_patterns import Load, LoadView


def traffic_routes(fleet: Fleet) -> APIRouter:
    api = ResourceRoutes()
    traffic = api.of(TRAFFIC)
    traffic.list(lambda: [_current_view(name) for name in fleet.traffic.loads])

    @traffic.change("PUT")
    def put_load(name: str, body: Load, validate_only: bool = False) -> LoadView:
        if (body.slice is None) == (body.instance is None):
            raise InvalidField("give either a slice, or an instance and a plane", field="slice")
        if body.target is not None and body.pattern != "incast":
            raise InvalidField("allowed only for pattern incast", field="target")
        if (body.targets is not None) != (body.pattern == "pull"):
            raise InvalidField("required for pattern pull, and allowed only for it", field="targets")
        if body.gbps_per_npu == 0 and not body.bursts:
            raise InvalidField("must be above 0, unless bursts is true", field="gbpsPerNpu")
        for field, named in (("target", [body.target]), ("targets", body.targets or [])):
            for node in named:
                if node is not None and node not in fleet.nodes:
                    raise InvalidField(f"this fleet has no node {node}", field=field)
        validate_resource_name(name)
        if validate_only:
            return _view(name, body)
        fleet.offer_load(name, body)
        return _current_view(name)

    @traffic.change("DELETE")
    def remove_load(name: str, validate_only: bool = False) -> None:
        _known(name)
        if not validate_only:
            fleet.withdraw_load(name)

    def _known(name: str) -> Load:
        if name not in fleet.traffic.loads:
            raise NotFound(f"load {name[:80]!r} does not exist", field="name")
        return fleet.traffic.loads[name]

    def _current_view(name: str) -> LoadView:
        return _view(name, _known(name))

    traffic.get(_current_view)

    def _view(name: str, load: Load) -> LoadView:
        current = fleet.traffic.tables_by_slice(load)
        sent, dropped = fleet.traffic.load_rates(name) if name in fleet.traffic.loads else (0.0, 0.0)
        senders = sum(load.sender_count(tables) for tables in current.values())
        return LoadView(
            name=name_of(name),
            project=project_of(name),
            load=load,
            slices=[reference_to(slice, project_of(name)) for slice in sorted(current)],
            members=sum(map(len, current.values())),
            offered_gbps=round(senders * load.gbps_per_npu * fleet.spec.node.npus, 6),
            sent_gbps=round(sent, 6),
            dropped_gbps=round(dropped, 6),
            burst=fleet.traffic.burst(name) if name in fleet.traffic.loads else None,
        )

    return api.router
