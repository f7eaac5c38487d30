"""preflight: refuse a scenario that cannot be run, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcompute.contract import InstanceShape
from matrixcompute.scenarios.fault_injections import PROCESSES_UNAVAILABLE, FaultInjection, plan_injections
from matrixcompute.scenarios.report import Preview
from matrixcompute.scenarios.schema import Scenario, seconds
from matrixcompute.scenarios.service_clients import ServiceClients, Snapshot
from matrixcompute.scenarios.targets import resolve_targets
from matrixresource.agent.fault_catalogue import CATALOGUE


@dataclass(frozen=True)
class Preflight:
    """The chosen targets, and the faults to inject into them. `planned`: for each instance that does not exist yet, by
    key, the members it would have."""

    targets: dict[str, list[str]]
    injections: Sequence[FaultInjection]
    planned: dict[str, list[dict[str, Any]]]


async def preflight(name: str, scenario: Scenario, clients: ServiceClients) -> Preflight:
    """Raises InvalidField with the field's path for what cannot be done, Unavailable if a service does not answer."""
    if targets_processes(scenario) and not await clients.services():
        _refuse_processes(scenario)
    planned: dict[str, list[dict[str, Any]]] = {}
    for key, shape in scenario.given.items():
        if await clients.find("compute", "instances", key) is None:
            try:
                view = await clients.put("compute", "instances", key, given_spec(shape), validate_only=True)
            except MatrixError as refused:
                if not refused.retryable:
                    refused.field = f"given.{key}"
                raise
            planned[key] = view.get("members", [])
    snapshot = Snapshot(clients)
    targets = await resolve_targets(scenario, snapshot, planned)
    injections = plan_injections(
        scenario, targets, [each["name"] for each in await snapshot.list_all("resource", "nodes")]
    )
    numbers = {action.name: number for number, action in enumerate(scenario.method)}
    for each in injections:
        try:
            await each.inject(clients, f"{name}-", validate_only=True)
        except InvalidField as refused:
            raise InvalidField(refused.message, field=f"method[{numbers[each.action]}].{refused.field}") from refused
    return Preflight(targets, injections, planned)


def given_spec(shape: InstanceShape) -> dict[str, Any]:
    """The instance's spec without its project, which is in its key."""
    return {field: value for field, value in shape.wire().items() if field != "project"}


def targets_processes(scenario: Scenario) -> bool:
    """Whether the scenario targets services themselves, or injects faults into them."""
    injections = any(CATALOGUE[action.fault].is_process_fault for action in scenario.method)
    return injections or any(target.type == "service" for target in scenario.targets.values())


def _refuse_processes(scenario: Scenario) -> None:
    for number, action in enumerate(scenario.method):
        if CATALOGUE[action.fault].is_process_fault:
            raise InvalidField(f"{action.fault}: {PROCESSES_UNAVAILABLE}", field=f"method[{number}].fault")
    for name, target in scenario.targets.items():
        if target.type == "service":
            raise InvalidField(PROCESSES_UNAVAILABLE, field=f"targets.{name}.type")


async def preview(name: str, scenario: Scenario, clients: ServiceClients) -> Preview:
    """What a run would do. Nothing is changed."""
    return preview_of(name, scenario, await preflight(name, scenario, clients))


def preview_of(name: str, scenario: Scenario, plan: Preflight) -> Preview:
    return Preview(
        scenario=name,
        seed=scenario.seed,
        targets=plan.targets,
        given={key: [each["node"] for each in members] for key, members in plan.planned.items()},
        actions=[
            f"{action.at}: {action.fault} on {', '.join(e.target for e in plan.injections if e.action == action.name)}"
            + (f" for {action.duration}" if action.duration else "")
            for action in scenario.method
        ],
        expectations=[
            f"{each.sentence()}: {each.mode} within {each.within} of {scenario.action(each.after).name}"
            for each in scenario.expect
        ],
        seconds=max(seconds(scenario.action(each.after).at) + seconds(each.within) for each in scenario.expect),
    )
