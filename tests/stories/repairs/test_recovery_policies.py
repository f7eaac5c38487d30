"""A recovery policy limits what is done about an instance; the rules it limits are there to be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

RESTART = "80E18005"


async def put(stack: Stack, name: str, status: int = 200, **policy: Any) -> dict[str, Any]:
    answer = await stack.http["compute"].put(f"/v1/recovery-policies/{name}", json=policy)
    assert answer.status_code == status, answer.text
    return answer.json()


async def until_condition(stack: Stack, type: str, reason: str) -> str:
    """The message of a condition of `one`, once that has this reason."""
    found: list[str] = []

    async def there() -> bool:
        view = await stack.compute.find_instance("one")
        assert view is not None
        found[:] = [each.message for each in view.conditions if (each.type, each.reason) == (type, reason)]
        return bool(found)

    await stack.until(there, f"{type} is for {reason}", within_s=600)
    return found[0]


async def rungs(stack: Stack) -> list[list[str]]:
    operations = (await stack.get("compute", "/v1/operations?filter=verb%3Dreplace-node")).json()["items"]
    return [[each["rung"] for each in operation["rungs"]] for operation in operations]


async def test_policy_stops_recovery_until_a_retry(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        node = (await stack.active("one", 2)).members[0].node
        made = await put(stack, "gentle", instance="one", rungs=["reset-npu", "restart"], onExhausted="Stop")
        assert (made["rungs"], made["ladders"]["Restart"]) == (["restart", "reset-npu"], ["reset-npu"])
        assert made["ladders"]["Separate"] == []
        stack.impair("npu", "npu-fault", node, npu=3, code=RESTART, endsWith="none")
        message = await until_condition(stack, "Progressing", "RecoveryStopped")
        assert message.endswith("its recovery policy allows nothing more; it waits for `:retry`")
        assert await rungs(stack) == [["reset-npu"]]
        await stack.restart("compute")
        await until_condition(stack, "Degraded", "RungsExhausted")
        view = await stack.compute.find_instance("one")
        assert (view.state, view.members[0].node) == ("Active", node), "it keeps what it has"

        assert (await stack.http["compute"].delete("/v1/recovery-policies/gentle")).status_code == 204
        assert (await stack.http["compute"].post("/v1/instances/one:retry")).status_code == 202

        async def replaced() -> bool:
            after = await stack.compute.find_instance("one")
            return after.state == "Active" and node not in {each.node for each in after.members}

        await stack.until(replaced, "it has another node", within_s=1800, every_s=5)
        assert (await rungs(stack))[-1] == ["reset-npu", "reboot", "replace"], "nothing is tried twice"
        await stack.check()


async def test_instance_policy_overrides_the_project_policy(tmp_path):
    async with Stack(tmp_path) as stack:
        all_rungs = ["restart", "reset-npu", "reboot", "replace", "degrade"]
        shown = await put(stack, "all", drainSeconds=30)
        assert (shown["rungs"], shown["onExhausted"], shown.get("instance")) == (all_rungs, "Retry", None)
        await put(stack, "own", instance="one")
        for name, body in (("second", {}), ("another", {"instance": "one"})):
            assert (await put(stack, name, 409, **body))["field"] == "instance"
        assert (await put(stack, "own", instance="one"))["generation"] == 1
        assert (await put(stack, "own", instance="one", drainSeconds=0))["generation"] == 2
        tried = await stack.http["compute"].put("/v1/recovery-policies/x?validateOnly=true", json={"instance": "two"})
        assert tried.status_code == 200
        stale = {"If-Match": '"999999"'}
        refused = await stack.http["compute"].put("/v1/recovery-policies/own", json={}, headers=stale)
        assert refused.status_code == 412
        listed = (await stack.get("compute", "/v1/recovery-policies")).json()["items"]
        assert [each["name"] for each in listed] == ["all", "own"]
        rules = {each["name"]: each for each in (await stack.get("compute", "/v1/recovery-rules")).json()["items"]}
        assert [each["rung"] for each in rules["RestartRequest"]["ladder"]] == ["restart", "replace"]
        assert rules["RestartRequest"]["ladder"][0]["timeoutS"] == 60
        assert (rules["RestartRequest"]["drainS"], rules["Separate"].get("drainS")) == (60, None)
