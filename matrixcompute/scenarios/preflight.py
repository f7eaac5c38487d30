"""preflight: refuse a scenario that cannot be run, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcompute.contract import InstanceShape
from matrixcompute.scenarios.report import Preview
from matrixcompute.scenarios.schema import Scenario, seconds
from matrixcompute.scenarios.strikes import OF_PROCESSES, Strike, strikes_of
from matrixcompute.scenarios.targets import resolve_targets
from matrixcompute.scenarios.world import Look, World
from matrixresource.agent.fault_catalogue import CATALOGUE


@dataclass(frozen=True)
class Preflight:
    """The chosen targets, and the faults to inject into them. `planned`: for each instance that does not exist yet, by
    key, the members it would have."""

    targets: dict[str, list[str]]
    strikes: Sequence[Strike]
    planned: dict[str, list[dict[str, Any]]]


async def preflight(name: str, scenario: Scenario, world: World) -> Preflight:
    """Raises InvalidField with the field's path for what cannot be done, Unavailable if a service does not answer."""
    if of_processes(scenario) and not await world.services():
        _refuse_processes(scenario)
    planned: dict[str, list[dict[str, Any]]] = {}
    for key, shape in scenario.given.items():
        if await world.find("compute", "instances", key) is None:
            try:
                view = await world.put("compute", "instances", key, given_spec(shape), validate_only=True)
            except MatrixError as refused:
                if not refused.retryable:
                    refused.field = f"given.{key}"
                raise
            planned[key] = view.get("members", [])
    look = Look(world)
    targets = await resolve_targets(scenario, look, planned)
    strikes = strikes_of(scenario, targets, [each["name"] for each in await look.all("resource", "nodes")])
    numbers = {action.name: number for number, action in enumerate(scenario.method)}
    for each in strikes:
        try:
            await each.put(world, f"{name}-", validate_only=True)
        except InvalidField as refused:
            raise InvalidField(refused.message, field=f"method[{numbers[each.action]}].{refused.field}") from refused
    return Preflight(targets, strikes, planned)


def given_spec(shape: InstanceShape) -> dict[str, Any]:
    """The instance's spec without its project, which is in its key."""
    return {field: value for field, value in shape.wire().items() if field != "project"}


def of_processes(scenario: Scenario) -> bool:
    """Whether the scenario targets services themselves, or injects faults into them."""
    strikes = any(CATALOGUE[action.fault].of_processes for action in scenario.method)
    return strikes or any(target.type == "service" for target in scenario.targets.values())


def _refuse_processes(scenario: Scenario) -> None:
    for number, action in enumerate(scenario.method):
        if CATALOGUE[action.fault].of_processes:
            raise InvalidField(f"{action.fault}: {OF_PROCESSES}", field=f"method[{number}].fault")
    for name, target in scenario.targets.items():
        if target.type == "service":
            raise InvalidField(OF_PROCESSES, field=f"targets.{name}.type")


async def preview(name: str, scenario: Scenario, world: World) -> Preview:
    """What a run would do. Nothing is changed."""
    return previewed(name, scenario, await preflight(name, scenario, world))


def previewed(name: str, scenario: Scenario, found: Preflight) -> Preview:
    return Preview(
        scenario=name,
        seed=scenario.seed,
        targets=found.targets,
        given={key: [each["node"] for each in members] for key, members in found.planned.items()},
        actions=[
            f"{action.at}: {action.fault} on {', '.join(e.target for e in found.strikes if e.action == action.name)}"
            + (f" for {action.duration}" if action.duration else "")
            for action in scenario.method
        ],
        expectations=[
            f"{each.sentence()}: {each.mode} within {each.within} of {scenario.action(each.after).name}"
            for each in scenario.expect
        ],
        seconds=max(seconds(scenario.action(each.after).at) + seconds(each.within) for each in scenario.expect),
    )
