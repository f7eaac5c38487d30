"""The part of the demo about sharing: a plan, a preemption by priority, a cabinet that closes.

It runs beside the serving instance, on the nodes that one leaves free, and undoes everything before the demo continues.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from matrixcommon.model.errors import NotFound
from services.matrixctl.demo.shared_steps import TIMEOUT_WALL_S, DemoRun
from services.matrixctl.demo.step_runner import check, wait_until
from services.matrixctl.output.screen import echo

GUEST, URGENT = "guest", "urgent"


def condition(view: dict[str, Any], type: str) -> dict[str, Any]:
    return next((each for each in view.get("conditions") or [] if each["type"] == type), {})


def get_instance(demo: DemoRun, name: str) -> dict[str, Any]:
    """An instance as MatrixCompute shows it; {} if there is none."""
    return demo.client.get("compute", f"/v1/instances/{name}") or {}


def is_settled(demo: DemoRun, name: str) -> bool:
    view = get_instance(demo, name)
    return view.get("state") == "Active" and condition(view, "Ready").get("status") == "True"


def ensure_instance(demo: DemoRun, name: str, **shape: Any) -> None:
    demo.client.call("compute", "PUT", f"/v1/instances/{name}", body=shape)
    wait_until(f"{name} becoming Active", lambda: is_settled(demo, name), TIMEOUT_WALL_S)


def plan(demo: DemoRun) -> None:
    """Plan a request without creating anything: why it does not fit, and what would help."""
    free = int(demo.client.call("resource", "GET", "/v1/fragmentation")["freeNodes"])
    answer = demo.client.call("resource", "POST", "/v1/plans", body={"nodes": free + 1})
    check(not answer["fits"], f"{free + 1} nodes fit although only {free} are free")
    echo(f"   [bold]$ matrixctl plan --nodes {free + 1}[/]")
    echo(f"   {answer['message']}")
    check(bool(answer["changes"]), "the plan names nothing that would help")
    for change in answer["changes"][:3]:
        echo(f"   - {change['message']}")
    fits = demo.client.call("resource", "POST", "/v1/plans", body={"npus": 2})
    check(fits["fits"], f"two NPUs do not fit: {fits['message']}")
    echo(f"   [bold]$ matrixctl plan --npus 2[/]\n   fits: a quarter of {fits['members'][0]}")


def preempt(demo: DemoRun) -> None:
    """An instance of higher priority preempts the guest, which waits, and returns when that instance leaves."""
    free = int(demo.client.call("resource", "GET", "/v1/fragmentation")["freeNodes"])
    ensure_instance(demo, GUEST, nodes=free // 2, priority=-10)
    echo(f"   {GUEST} has {free // 2} nodes, at priority -10; {free - free // 2} nodes are free")
    desired = {"nodes": free - free // 2 + 1, "priority": 5, "preemption": "LowerPriority"}
    path = f"/v1/instances/{URGENT}"
    planned = demo.client.call("compute", "PUT", path, body=desired, params={"validateOnly": "true"})
    check(planned["preempts"] == [GUEST], f"the plan would preempt {planned['preempts']}")
    echo(f"   {URGENT} wants {desired['nodes']}, at priority 5; according to the plan it would preempt {GUEST}")
    ensure_instance(demo, URGENT, **desired)

    def waiting() -> bool:
        view = get_instance(demo, GUEST)
        return view.get("state") == "Pending" and condition(view, "Preempted").get("status") == "True"

    wait_until(f"{GUEST} being preempted", waiting, TIMEOUT_WALL_S)
    echo(f"   {URGENT} is Active; {GUEST} is Pending: {condition(get_instance(demo, GUEST), 'Preempted')['message']}")
    release_instance(demo, URGENT)
    wait_until(f"{GUEST} being placed again", lambda: is_settled(demo, GUEST), TIMEOUT_WALL_S)
    echo(f"   {URGENT} is gone, {GUEST} is Active again")


def close_cabinet(demo: DemoRun) -> None:
    """Close the guest's cabinet: it moves out while it serves."""
    demo.client.call("compute", "PUT", f"/v1/instances/{GUEST}", body={"nodes": 2, "priority": -10})
    wait_until(f"{GUEST} shrinking", lambda: is_settled(demo, GUEST) and len(members(demo)) == 2, TIMEOUT_WALL_S)
    cabinet = members(demo)[0].rpartition("-")[0]
    demo.client.call("resource", "POST", f"/v1/domains/{cabinet}:close", body={}, params={"drain": "true"})
    echo(f"   [bold]$ matrixctl domain close {cabinet} --drain[/]")
    try:

        def left() -> bool:
            return is_settled(demo, GUEST) and not any(node.startswith(f"{cabinet}-") for node in members(demo))

        wait_until(f"{GUEST} leaving {cabinet}", left, TIMEOUT_WALL_S)
        echo(f"   {GUEST} moved to {', '.join(members(demo))}, each member there first, then gone here")
    finally:
        demo.client.call("resource", "POST", f"/v1/domains/{cabinet}:open", body={})
    release_instance(demo, GUEST)


def members(demo: DemoRun) -> list[str]:
    return [each["node"] for each in get_instance(demo, GUEST).get("members", []) if each["role"] == "member"]


def release_instance(demo: DemoRun, name: str) -> None:
    with suppress(NotFound):
        demo.client.call("compute", "DELETE", f"/v1/instances/{name}")
    wait_until(f"{name} being released", lambda: not get_instance(demo, name), TIMEOUT_WALL_S)
