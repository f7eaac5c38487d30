"""What the stories about maintenance ask and await."""

from __future__ import annotations

from typing import Any

from tests.stack import Stack

NEW = "emulated-2"


async def put(stack: Stack, name: str, status: int = 200, **spec: Any) -> dict[str, Any]:
    answer = await stack.http["compute"].put(f"/v1/maintenances/{name}", json=spec)
    assert answer.status_code == status, answer.text
    return answer.json()


async def verb(stack: Stack, name: str, word: str, status: int = 200) -> dict[str, Any]:
    answer = await stack.http["compute"].post(f"/v1/maintenances/{name}:{word}")
    assert answer.status_code == status, answer.text
    return answer.json()


async def show(stack: Stack, name: str) -> dict[str, Any]:
    return (await stack.get("compute", f"/v1/maintenances/{name}")).json()


async def until(stack: Stack, name: str, state: str, reason: str = "", within_s: float = 3600) -> dict[str, Any]:
    """The maintenance once it is in that state, and for that reason if one is given."""
    seen: list[dict[str, Any]] = []

    async def so() -> bool:
        seen.append(await show(stack, name))
        return seen[-1]["state"] == state and reason in ("", seen[-1]["phaseReason"])

    try:
        await stack.until(so, f"maintenance {name} is {state} {reason}", within_s=within_s)
    except AssertionError as late:
        raise AssertionError(f"{late}: {seen[-1]}") from late
    return seen[-1]


async def until_unit(stack: Stack, name: str, state: str, unit: str | None = None) -> str:
    """The unit, or the first one, that is in that state."""
    found: list[str] = []

    async def so() -> bool:
        found[:] = [
            each["name"]
            for each in (await show(stack, name))["units"]
            if each["state"] == state and unit in (None, each["name"])
        ]
        return bool(found)

    await stack.until(so, f"a unit of {name} is {state}", within_s=3600, every_s=1)
    return found[0]


async def node(stack: Stack, name: str) -> dict[str, Any]:
    return await stack.resource.get(f"/v1/nodes/{name}")


async def members(stack: Stack, name: str) -> list[str]:
    instance = await stack.active(name)
    return [each.node for each in instance.members if each.role == "member"]


async def events(stack: Stack, instance: str) -> list[str]:
    listed = await stack.get("compute", f"/v1/events?filter=about%3D{instance}&pageSize=500")
    return [each["reason"] for each in listed.json()["items"]]


async def nothing_is_left(stack: Stack) -> None:
    """No node has a cordon, and none is in service."""
    for each in await stack.resource.nodes():
        assert each.cordoned_by == [], each
        assert (each.state, each.desired_state) != ("Servicing", "Servicing"), each
