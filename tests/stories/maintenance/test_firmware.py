"""A node's firmware is written while it is serviced; only a check has it back."""

from __future__ import annotations

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

NODE = "sn0-c05-n1"
NEW = "emulated-2"


async def ask(stack: Stack, verb: str, status: int = 200, **body: str) -> dict:
    answer = await stack.http["resource"].post(f"/v1/nodes/{NODE}:{verb}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def node(stack: Stack) -> dict:
    return await stack.resource.get(f"/v1/nodes/{NODE}")


async def until(stack: Stack, text: str, **fields: str | None) -> dict:
    seen: list[dict] = []

    async def so() -> bool:
        seen.append(await node(stack))
        return all(seen[-1].get(name) == value for name, value in fields.items())

    await stack.until(so, text, within_s=600)
    return seen[-1]


async def test_firmware_is_updated_in_service(tmp_path):
    async with Stack(tmp_path) as stack:
        assert (await node(stack))["firmware"] == "emulated-1"
        assert ":service" in (await ask(stack, "update", 409, firmware=NEW))["detail"]
        await ask(stack, "service")
        assert (await ask(stack, "update", 422))["field"] == "firmware"
        assert (await ask(stack, "service", 422, firmware=NEW))["field"] == "firmware"
        asked = await ask(stack, "update", firmware=NEW)
        assert (asked["state"], asked["task"]) == ("Servicing", "update")
        await stack.restart("agents")
        assert (await ask(stack, "update", firmware=NEW))["generation"] == asked["generation"], "it is under way"
        assert f"{NEW} is being written" in (await ask(stack, "update", 409, firmware="emulated-3"))["detail"]
        await until(stack, "it is written", firmware=NEW, task=None)
        await ask(stack, "recover")
        await until(stack, "its check has passed", state="Available")
        await stack.restart("agents")
        await stack.restart("resource")
        found = (await stack.get("resource", f"/v1/nodes/{NODE}/inventory")).json()["found"]["firmware"]
        assert found == NEW == (await node(stack))["firmware"]
        await stack.check()


async def test_recovery_during_a_firmware_write_completes_it(tmp_path):
    async with Stack(tmp_path) as stack:
        await ask(stack, "service")
        await ask(stack, "update", firmware=NEW)
        await until(stack, "it is being written", stage="write-firmware")
        assert (await ask(stack, "recover"))["state"] == "Verifying"
        back = await until(stack, "its check has passed", state="Available")
        assert back["firmware"] == NEW
        assert ("Verifying", "Available") in stack.node_moves()
        await stack.check()


async def test_failed_firmware_write_keeps_the_old_version(tmp_path):
    async with Stack(tmp_path) as stack:
        await ask(stack, "service")
        stack.impair("bad", "stage-failure", NODE, stage="write-firmware", why="the image does not verify")
        await ask(stack, "update", firmware=NEW)
        failed = await until(stack, "it failed", stateReason="StageFailed")
        assert (failed["state"], failed["firmware"], failed.get("task")) == ("Servicing", "emulated-1", None)
        assert "write-firmware: the image does not verify" in failed["stateMessage"]
        events = (await stack.get("resource", "/v1/events", params={"filter": f"about={NODE}"})).json()["items"]
        reported = [each for each in events if each["reason"] == "StageFailed"]
        assert [(each["type"], "the image does not verify" in each["message"]) for each in reported] == [
            ("Warning", True)
        ]
        stack.repair("bad")
        await ask(stack, "update", firmware=NEW)
        await until(stack, "it is written", firmware=NEW, task=None)
        await ask(stack, "recover")
        await until(stack, "it is back", state="Available")
