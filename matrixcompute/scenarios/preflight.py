"""preflight: everything about a scenario that can be refused, refused before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcompute.scenarios.report import Preview
from matrixcompute.scenarios.schema import Scenario, seconds
from matrixcompute.scenarios.strikes import Strike, strikes_of
from matrixcompute.scenarios.targets import resolve_targets
from matrixcompute.scenarios.world import Look, World


@dataclass(frozen=True)
class Preflight:
    """What the targets are, and what will be done to them. `planned`: the members that instances would have which are
    not there yet, by their key."""

    targets: dict[str, list[str]]
    strikes: Sequence[Strike]
    planned: dict[str, list[dict[str, Any]]]


async def preflight(name: str, scenario: Scenario, world: World) -> Preflight:
    """Raises InvalidField with the field's path for what cannot be done, Unavailable where a service is away."""
    planned: dict[str, list[dict[str, Any]]] = {}
    for key, shape in scenario.given.items():
        if await world.find("compute", "instances", key) is None:
            try:
                view = await world.put("compute", "instances", key, shape.wire(), validate_only=True)
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


async def preview(name: str, scenario: Scenario, world: World) -> Preview:
    """What a run would do. Nothing is changed."""
    found = await preflight(name, scenario, world)
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
