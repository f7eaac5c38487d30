"""The machine of a deployment that named none: that of the supernodes its instance lies on.

It is found once, when the deployment is asked for or with the first view of its fabric, and is then the deployment's as
if it had been named: should its instance come to lie on another kind of supernode, no times change without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_workload.contract import DeploymentRequest
from infer_workload.layout.machines import found_machine, other_machine
from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.store import DeploymentRow, InferStore
from infer_workload.timing.calibration import Calibration
from matrixcommon.model.errors import InvalidField


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


def use_machine(live: LiveDeployment, machine: str | None, machines: Mapping[str, Calibration]) -> bool:
    """Time a deployment that had no machine so far on this one; whether it had none, and there is one."""
    if live.spec.machine is not None or machine is None or machine not in machines:
        return False
    live.spec = naming(live.spec, machine)
    live.calibration = live.weights.calibration = machines[machine]
    return True


def settle_machine(
    store: InferStore, live: LiveDeployment, view: Any | None, machines: Mapping[str, Calibration]
) -> None:
    """Have the machine that this view shows for good, and write it down."""
    if not use_machine(live, found_machine(view), machines):
        return
    with store.records.transaction() as session:
        if (row := session.get(DeploymentRow, live.name)) is not None:
            row.request = live.spec.wire()
