"""Whether there are the models and the machine that a deployment names, and its instance lies on that machine.

A deployment is timed with the constants of one machine's file, and its instance lies on supernodes of one model: both
have to be the same, or its times would be of a machine that is not there. One that names no machine is of that of its
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
    """The machine of supernodes whose spec bears that model: `Atlas 950` is atlas-950."""
    return "-".join(model.casefold().split())


def found_machine(view: Any | None) -> str | None:
    """The machine of what this FabricView shows; of one that does not say what supernodes it is of, the published one.
    None while there is no view."""
    if view is None:
        return None
    return machine_of(view.machine) if view.machine else MACHINE


def other_machine(asked: str | None, view: Any | None, machines: Collection[str]) -> str:
    """Why a deployment for the machine `asked`, or for whichever is there, is not served on what this FabricView shows;
    empty where it is, or where the view does not say what supernodes it is of."""
    if view is None or not view.machine or (there := machine_of(view.machine)) == asked:
        return ""
    lies = f"instance {view.instance} lies on a supernode of {view.machine}: "
    if asked is not None:
        return f"{lies}as machine {there} is accepted, not {asked[:80]}"
    return "" if there in machines else f"{lies}there is no machine {there}; there are {', '.join(sorted(machines))}"


def with_machine(
    request: DeploymentRequest, view: Any | None, machines: Mapping[str, Calibration]
) -> DeploymentRequest:
    """A new deployment's request with the machine of its instance; as it is while that cannot be told. Raises
    InvalidField where another is named, or none that there is lies under the instance."""
    if other := other_machine(request.machine, view, machines):
        raise InvalidField(other, field="machine")
    return request if request.machine is not None else naming(request, found_machine(view))


def naming(request: DeploymentRequest, machine: str | None) -> DeploymentRequest:
    """The request with that machine, where it names none."""
    return request if request.machine is not None else request.model_copy(update={"machine": machine})


def check_known(
    request: DeploymentRequest, models: Mapping[str, ServedModel], machines: Mapping[str, Calibration]
) -> None:
    """Raises InvalidField with the first field that names what is not there, and what is; a plane among them where the
    machine is known."""
    kept = [(f"modelCacheModels[{at}]", name) for at, name in enumerate(request.model_cache_models)]
    named: list[tuple[str, str, str, Mapping[str, object]]] = [("model", "model", request.model, models)]
    named += [("machine", "machine", request.machine, machines)] if request.machine is not None else []
    named += [(field, "model", name, models) for field, name in kept]
    for field, kind, name, there in named:
        if name not in there:
            known = ", ".join(sorted(there))
            raise InvalidField(f"there is no {kind} {name[:80]!r}; there are {known}", field=field)
    if request.machine is not None:
        try:
            check_planes(request, machines[request.machine])
        except DoesNotFit as refused:
            raise InvalidField(refused.message, field="cachePlane", blocking=refused.blocking) from refused
