"""resolve_targets: the resources of each target now, chosen by the seed among all that match its selection.

Candidates are read from the services and sorted by name, so the same seed chooses the same on the same machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.scenarios.metrics import refers_to
from matrixcompute.scenarios.schema import Scenario, Target
from matrixcompute.scenarios.service_clients import Snapshot


def choose_resources(candidates: Sequence[str], mode: str, random: Random) -> list[str]:
    """As many candidates as the mode asks for, sorted; none if there are fewer than COUNT asks for."""
    found = re.fullmatch(r"(ALL|COUNT|PERCENT)(?:\((\d+)\))?", mode)
    assert found is not None
    number = int(found[2] or 0)
    size = {"ALL": len(candidates), "COUNT": number, "PERCENT": len(candidates) * number // 100}[found[1]]
    return sorted(random.sample(sorted(candidates), size)) if size <= len(candidates) else []


async def resolve_targets(
    scenario: Scenario, snapshot: Snapshot, planned: dict[str, list[dict[str, Any]]]
) -> dict[str, list[str]]:
    """The resources of each target, by target name. `planned`: the members that instances not yet created would have.
    Raises InvalidField for a target that selects nothing."""
    found = {}
    for name, target in scenario.targets.items():
        instance = target.select.instance
        if instance is not None and await _members(instance, snapshot, planned) is None:
            raise InvalidField(f"there is no instance {instance}", field=f"targets.{name}.select.instance")
        candidates = await _candidates(target, snapshot, planned)
        if not candidates:
            raise InvalidField("the selection matches nothing", field=f"targets.{name}.select")
        chosen = choose_resources(candidates, target.mode, Random(f"{scenario.seed}:{name}"))
        if not chosen:
            raise InvalidField(
                f"{target.mode} of {len(candidates)} candidates selects nothing", field=f"targets.{name}.mode"
            )
        found[name] = chosen
    return found


async def _candidates(target: Target, snapshot: Snapshot, planned: dict[str, list[dict[str, Any]]]) -> list[str]:
    select = target.select
    if target.type == "service":
        return sorted(each for each in await snapshot.clients.services() if not select.names or each in select.names)
    if target.type == "switch":
        switches = await snapshot.list_all("link", "switches")
        return sorted(each["name"] for each in switches if _is_switch(target, each))
    nodes = [each for each in await snapshot.list_all("resource", "nodes") if select.state in (None, each["state"])]
    names = {each["name"] for each in nodes}
    if select.instance is not None:
        members = await _members(select.instance, snapshot, planned) or []
        names &= {each["node"] for each in members if select.role in (None, each["role"])}
    domains = {name: (NodeName(name).cabinet, NodeName(name).supernode) for name in names}
    matching = [
        name
        for name, (cabinet, supernode) in domains.items()
        if select.cabinet in (None, cabinet) and select.supernode in (None, supernode)
    ]
    found = matching if target.type == "node" else [str(domains[name][0]) for name in matching]
    return sorted({each for each in found if not select.names or each in select.names})


def _is_switch(target: Target, switch: dict[str, Any]) -> bool:
    select = target.select
    return (
        switch["kind"] in ("l1", "l2", "leaf")
        and (not select.names or switch["name"] in select.names)
        and select.plane in (None, switch["plane"])
        and select.kind in (None, switch["kind"])
        and select.cabinet in (None, switch.get("cabinet"))
        and select.supernode in (None, switch["name"].partition("-")[0])
        and select.state in (None, switch["state"])
    )


async def _members(
    instance: str, snapshot: Snapshot, planned: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]] | None:
    """The instance's members; None if there is no such instance."""
    if instance in planned:
        return planned[instance]
    for each in await snapshot.list_all("compute", "instances"):
        if refers_to(each, "name", instance):
            members: list[dict[str, Any]] = each.get("members", [])
            return members
    return None
