"""Check that a deployment's models and machine are known, and that its instance is on that machine.

A deployment is timed with the constants of one machine's file, and its instance is on supernodes of one model. Both
must match, or the times would be those of another machine. A deployment that names no machine gets that of its
supernodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.layout.deployment import DoesNotFit, check_planes
from infer_workload.timing.calibration import MACHINE, Calibration
from infer_workload.timing.model import ServedModel
from matrixcommon.model.errors import InvalidField


def machine_of(model: str) -> str:
    """The machine name of supernodes of that model: `Atlas 950` becomes atlas-950."""
    return "-".join(model.casefold().split())


def machine_of_view(view: Any | None) -> str | None:
    """The machine of a FabricView; the published one if the view does not name its supernodes. None without a view."""
    if view is None:
        return None
    return machine_of(view.machine) if view.machine else MACHINE


def machine_mismatch(asked: str | None, view: Any | None, machines: Collection[str]) -> str:
    """Why a deployment for the machine `asked` (None: any) cannot be served on this FabricView; empty if it can, or if
    the view does not name its supernodes."""
    if view is None or not view.machine or (there := machine_of(view.machine)) == asked:
        return ""
    where = f"instance {view.instance} is on a supernode of {view.machine}: "
    if asked is not None:
        return f"{where}the machine must be {there}, not {asked[:80]}"
    return "" if there in machines else f"{where}unknown machine {there}; known are {', '.join(sorted(machines))}"


def resolve_machine(
    request: DeploymentRequest, view: Any | None, machines: Mapping[str, Calibration]
) -> DeploymentRequest:
    """A new deployment's request with the machine of its instance; unchanged while that is not known. Raises
    InvalidField if it names another, or if the instance's machine is not among `machines`."""
    if other := machine_mismatch(request.machine, view, machines):
        raise InvalidField(other, field="machine")
    return request if request.machine is not None else with_default_machine(request, machine_of_view(view))


def with_default_machine(request: DeploymentRequest, machine: str | None) -> DeploymentRequest:
    """The request with that machine, unless it names one."""
    return request if request.machine is not None else request.model_copy(update={"machine": machine})


def check_known(
    request: DeploymentRequest, models: Mapping[str, ServedModel], machines: Mapping[str, Calibration]
) -> None:
    """Raise InvalidField for the first field that names an unknown model or machine, listing the known ones, or a plane
    that the machine does not have."""
    kept = [(f"modelCacheModels[{at}]", name) for at, name in enumerate(request.model_cache_models)]
    named: list[tuple[str, str, str, Mapping[str, object]]] = [("model", "model", request.model, models)]
    named += [("machine", "machine", request.machine, machines)] if request.machine is not None else []
    named += [(field, "model", name, models) for field, name in kept]
    for field, kind, name, there in named:
        if name not in there:
            known = ", ".join(sorted(there))
            raise InvalidField(f"unknown {kind} {name[:80]!r}; known are {known}", field=field)
    if request.machine is not None:
        try:
            check_planes(request, machines[request.machine])
        except DoesNotFit as refused:
            raise InvalidField(refused.message, field="cachePlane", blocking=refused.blocking) from refused
