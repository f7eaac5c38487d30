"""The part of the demo about sharing: a plan, a preemption by priority, a cabinet that closes.

It runs beside the serving instance, on the nodes that one leaves free, and undoes everything before the demo continues.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from matrixcommon.model.errors import NotFound
from services.matrixctl.demo.story import check, until
from services.matrixctl.demo.telling import PATIENCE_WALL_S, Telling
from services.matrixctl.output.screen import say

GUEST, URGENT = "guest", "urgent"


def condition(view: dict[str, Any], type: str) -> dict[str, Any]:
    return next((each for each in view.get("conditions") or [] if each["type"] == type), {})


def find(demo: Telling, name: str) -> dict[str, Any]:
    """An instance as MatrixCompute shows it; {} if there is none."""
    return demo.reach.get("compute", f"/v1/instances/{name}") or {}


def settled(demo: Telling, name: str) -> bool:
    view = find(demo, name)
    return view.get("state") == "Active" and condition(view, "Ready").get("status") == "True"


def ask(demo: Telling, name: str, **shape: Any) -> None:
    demo.reach.call("compute", "PUT", f"/v1/instances/{name}", body=shape)
    until(f"{name} becoming Active", lambda: settled(demo, name), PATIENCE_WALL_S)


def plan(demo: Telling) -> None:
    """Plan a request without creating anything: why it does not fit, and what would help."""
    free = int(demo.reach.call("resource", "GET", "/v1/fragmentation")["freeNodes"])
    answer = demo.reach.call("resource", "POST", "/v1/plans", body={"nodes": free + 1})
    check(not answer["fits"], f"{free + 1} nodes fit although only {free} are free")
    say(f"   [bold]$ matrixctl plan --nodes {free + 1}[/]")
    say(f"   {answer['message']}")
    check(bool(answer["changes"]), "the plan names nothing that would help")
    for change in answer["changes"][:3]:
        say(f"   - {change['message']}")
    fits = demo.reach.call("resource", "POST", "/v1/plans", body={"npus": 2})
    check(fits["fits"], f"two NPUs do not fit: {fits['message']}")
    say(f"   [bold]$ matrixctl plan --npus 2[/]\n   fits: a quarter of {fits['members'][0]}")


def preempt(demo: Telling) -> None:
    """An instance of higher priority preempts the guest, which waits, and returns when that instance leaves."""
    free = int(demo.reach.call("resource", "GET", "/v1/fragmentation")["freeNodes"])
    ask(demo, GUEST, nodes=free // 2, priority=-10)
    say(f"   {GUEST} has {free // 2} nodes, at priority -10; {free - free // 2} nodes are free")
    desired = {"nodes": free - free // 2 + 1, "priority": 5, "preemption": "LowerPriority"}
    path = f"/v1/instances/{URGENT}"
    planned = demo.reach.call("compute", "PUT", path, body=desired, params={"validateOnly": "true"})
    check(planned["preempts"] == [GUEST], f"the plan would preempt {planned['preempts']}")
    say(f"   {URGENT} wants {desired['nodes']}, at priority 5; according to the plan it would preempt {GUEST}")
    ask(demo, URGENT, **desired)

    def waiting() -> bool:
        view = find(demo, GUEST)
        return view.get("state") == "Pending" and condition(view, "Preempted").get("status") == "True"

    until(f"{GUEST} being preempted", waiting, PATIENCE_WALL_S)
    say(f"   {URGENT} is Active; {GUEST} is Pending: {condition(find(demo, GUEST), 'Preempted')['message']}")
    give_back(demo, URGENT)
    until(f"{GUEST} being placed again", lambda: settled(demo, GUEST), PATIENCE_WALL_S)
    say(f"   {URGENT} is gone, {GUEST} is Active again")


def close_cabinet(demo: Telling) -> None:
    """Close the guest's cabinet: it moves out while it serves."""
    demo.reach.call("compute", "PUT", f"/v1/instances/{GUEST}", body={"nodes": 2, "priority": -10})
    until(f"{GUEST} shrinking", lambda: settled(demo, GUEST) and len(members(demo)) == 2, PATIENCE_WALL_S)
    cabinet = members(demo)[0].rpartition("-")[0]
    demo.reach.call("resource", "POST", f"/v1/domains/{cabinet}:close", body={}, params={"drain": "true"})
    say(f"   [bold]$ matrixctl domain close {cabinet} --drain[/]")
    try:

        def left() -> bool:
            return settled(demo, GUEST) and not any(node.startswith(f"{cabinet}-") for node in members(demo))

        until(f"{GUEST} leaving {cabinet}", left, PATIENCE_WALL_S)
        say(f"   {GUEST} moved to {', '.join(members(demo))}, each member there first, then gone here")
    finally:
        demo.reach.call("resource", "POST", f"/v1/domains/{cabinet}:open", body={})
    give_back(demo, GUEST)


def members(demo: Telling) -> list[str]:
    return [each["node"] for each in find(demo, GUEST).get("members", []) if each["role"] == "member"]


def give_back(demo: Telling, name: str) -> None:
    with suppress(NotFound):
        demo.reach.call("compute", "DELETE", f"/v1/instances/{name}")
    until(f"{name} being released", lambda: not find(demo, name), PATIENCE_WALL_S)
