"""A drain is a workflow: seen step by step, cancelled with its elements back in service, stuck where it is late."""

from __future__ import annotations

from tests.matrixlink.fleet import NODES, LinkStack
from tests.matrixlink.test_drains import get, put, uses_port

PORT = "ub-p3-k11"


async def operation(stack: LinkStack, at: int = -1) -> dict:
    return (await stack.http.get("/v1/operations")).json()["items"][at]


async def waiting_message(stack: LinkStack) -> dict:
    """The operation of a drain that waits for one agent, which is silent."""
    await stack.active()
    await put(stack)
    with stack.quiet(NODES[3]):
        await stack.settle()
    found = await operation(stack)
    assert (found["state"], found["step"]) == ("Running", "await_acknowledgements")
    return found


async def test_a_drain_shows_its_steps_and_pending_programs(stack):
    found = await waiting_message(stack)
    assert (found["verb"], found["target"], found["done"]) == ("drain-elements", "d1", False)
    assert [(step["name"], step["state"]) for step in found["steps"]] == [
        ("reroute_slices", "Done"), ("await_acknowledgements", "Running"), ("mark_drained", "Waiting"),
    ]  # fmt: skip
    assert f"a-ub.{NODES[3]}" in found["steps"][1]["message"]
    await stack.settle()
    found = await operation(stack)
    assert (found["state"], found["progress"], (await get(stack))["state"]) == ("Done", 1.0, "Drained")
    answer = await stack.http.post(f"/v1/operations/{found['name']}:cancel")
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")


async def test_a_cancelled_drain_returns_its_elements(stack):
    found = await waiting_message(stack)
    assert (await stack.http.post(f"/v1/operations/{found['name']}:cancel")).status_code == 202
    assert (await get(stack))["state"] == "Draining", "it is undone as a workflow is, not in the request"
    await stack.settle()
    assert (await operation(stack))["state"] == "Cancelled"
    view = await get(stack)
    assert (view["state"], view["waitingFor"], view["message"]) == ("Restored", 0, "in service again")
    assert len(uses_port(stack, PORT)) == 4
    assert (await stack.http.get(f"/v1/links/{NODES[0]}.{PORT}")).json()["drained"] is False
    stack.database.close()
    stack.restart()
    assert stack.slice_controller().fabric.all_drained() == {}, "nor is it drained in the next life of the process"
    again = await put(stack)
    assert (again["state"], again["generation"]) == ("Draining", 2)
    await stack.settle()
    assert ((await get(stack))["state"], uses_port(stack, PORT)) == ("Drained", [])


async def test_an_overdue_drain_is_stuck_with_a_reason_and_can_be_resumed(stack):
    found = await waiting_message(stack)
    assert (await stack.http.get("/v1/stuck")).json()["items"] == []
    stack.clock.at += 1900
    await stack.carry()
    stuck = (await stack.http.get("/v1/stuck")).json()["items"]
    assert [(each["name"], each["reason"]) for each in stuck] == [("d1", "StepDeadline")]
    assert f"a-ub.{NODES[3]}" in stuck[0]["message"]
    assert (await stack.http.post(f"/v1/operations/{found['name']}:resume")).status_code == 202
    assert (await stack.http.get("/v1/stuck")).json()["items"] == []
    await stack.settle()
    assert (await operation(stack))["state"] == "Done"


async def test_deleting_or_changing_a_drain_ends_its_operation(stack):
    await waiting_message(stack)
    await put(stack, elements=[f"{NODES[0]}.ub-p0"])
    first, second = (await stack.http.get("/v1/operations")).json()["items"]
    assert (first["state"], first["message"]) == ("Cancelled", "overtaken by drain-elements")
    assert second["state"] == "Running"
    assert (await stack.http.delete("/v1/drains/d1")).status_code == 204
    await stack.settle()
    assert (await operation(stack))["message"] == "overtaken by its deletion"
    assert not stack.runner.busy
    assert len(uses_port(stack, "ub-p0-k05")) == 4


async def test_a_drain_requested_while_workflows_are_drained_excludes_new_slices_and_completes_afterwards(stack):
    answer = await stack.http.put("/v1/workflow-drains/upgrade", json={"reason": "release 8"})
    assert (answer.status_code, answer.json()["state"]) == (200, "Draining")
    await stack.active()
    await put(stack)
    await stack.settle()
    assert uses_port(stack, PORT) == [], "routes lead around it: that is decided with the request"
    assert (await get(stack))["state"] == "Draining", "and nobody is told yet that maintenance may begin"
    view = (await stack.http.get("/v1/workflow-drains/upgrade")).json()
    assert (view["state"], view["running"], view["resting"], view["waiting"]) == ("Drained", 0, 0, 1)
    assert (await operation(stack))["message"] == "begins once workflows are no longer drained by upgrade"
    assert (await stack.http.delete("/v1/workflow-drains/upgrade")).status_code == 204
    await stack.carry()
    assert (await get(stack))["state"] == "Drained"


async def test_an_invalid_workflow_drain_is_refused_with_its_field(stack):
    for name, body, field in [
        ("No", {}, "name"),
        ("late", {"graceSeconds": -1}, "graceSeconds"),
        ("late", {"grace": 1}, "grace"),
    ]:
        answer = await stack.http.put(f"/v1/workflow-drains/{name}", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (await stack.http.get("/v1/workflow-drains")).json()["items"] == []
