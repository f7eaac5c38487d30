"""What those ask who run the machine, and what users ask besides their nodes: power, peerings, drains, maintenance."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.resource_key import key_of
from tests.matrixresource.topology.three_cabinets import NODES
from tests.simulation.drawing import booleans, fixed_dictionaries, just, sampled_from
from tests.simulation.rest_actions import ANY, action, pick
from tests.simulation.rest_life import Life

SOME = sampled_from(["x0", "x1"])
ELEMENTS = sampled_from(["sn0-l2p3-k11", "sn0-l2p0-k02", "sn0-rdma-leaf-1", f"{NODES[0]}/vpc", NODES[5]])


@action(which=ANY, verb=sampled_from(["stop", "start", "start", "restart"]))
async def switch_instance(life: Life, which: int, verb: str) -> None:
    project, name = pick(life, "instances", which)
    await life.ask("compute", "POST", f"/v1/instances/{name}:{verb}", {}, project=project)


@action(name=SOME, first=ANY, second=ANY, accepted=booleans())
async def ensure_peering(life: Life, name: str, first: int, second: int, accepted: bool) -> None:
    one = pick(life, "slices", first)
    plane = life.lists.keyed("slices").get(key_of(*one), {}).get("plane")
    others = [
        each for each in life.lists["slices"] if each["plane"] == plane and (each["project"], each["name"]) != one
    ]
    if others:
        other = others[second % len(others)]
        body = {"project": one[0], "slices": [key_of(*one), key_of(other["project"], other["name"])]}
        answer = await life.ask("link", "PUT", f"/v1/peerings/{name}", body)
        if accepted and answer.ok:
            path = f"/v1/peerings/{name}:accept"
            await life.ask("link", "POST", path, {"project": other["project"]}, project=one[0])


@action(which=ANY)
async def delete_peering(life: Life, which: int) -> None:
    project, name = pick(life, "peerings", which)
    await life.ask("link", "DELETE", f"/v1/peerings/{name}", project=project)


@action(name=SOME, element=ELEMENTS, anyway=booleans())
async def drain_element(life: Life, name: str, element: str, anyway: bool) -> None:
    await life.ask("link", "PUT", f"/v1/drains/{name}", {"elements": [element], "evenIfFloorsBreak": anyway})


@action(name=SOME)
async def restore_element(life: Life, name: str) -> None:
    await life.ask("link", "DELETE", f"/v1/drains/{name}")


@action(
    name=SOME,
    target=sampled_from([{"node": NODES[1]}, {"node": NODES[6]}, {"cabinet": "sn0-c01"}, {"switch": "sn0-l2p3-k11"}]),
    more=fixed_dictionaries(
        {},
        optional={
            "serviceS": sampled_from([30, 300]),
            "movable": booleans(),
            "budget": just({"maxUnavailable": 2}),
        },
    ),
)
async def maintain(life: Life, name: str, target: Any, more: Any) -> None:
    await life.ask("compute", "PUT", f"/v1/maintenances/{name}", {"target": target, **more})


@action(name=SOME, verb=sampled_from(["pause", "resume", "abort"]))
async def change_maintenance(life: Life, name: str, verb: str) -> None:
    await life.ask("compute", "POST", f"/v1/maintenances/{name}:{verb}", {})


@action(name=SOME)
async def delete_maintenance(life: Life, name: str) -> None:
    await life.ask("compute", "DELETE", f"/v1/maintenances/{name}")


@action(
    node=sampled_from(NODES),
    verb=sampled_from(["service", "quarantine", "recover", "inspect", "verify", "clean", "retire", "enrol"]),
    force=booleans(),
)
async def change_node(life: Life, node: str, verb: str, force: bool) -> None:
    await life.ask("resource", "POST", f"/v1/nodes/{node}:{verb}", {"force": force, "reason": "asked"})
