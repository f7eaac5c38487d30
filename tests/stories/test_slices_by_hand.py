"""Slices that users withdraw or add by hand: an instance has its own again, and those of others change nothing of it."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import Unavailable
from matrixcompute.clients.control_plane import ControlPlane
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def at_work(stack: Stack, instance: str, step: str) -> None:
    """Once the operation of the instance stands at that step."""

    async def reached() -> bool:
        view = await stack.compute.find_instance(instance)
        return (await stack.get("compute", f"/v1/operations/{view.operation}")).json()["step"] == step

    await stack.until(reached, f"{instance} is at {step}", within_s=600)


async def test_slice_withdrawn_during_creation_is_admitted_again(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await at_work(stack, "one", "await_ready")
        for plane in ("rdma", "vpc"):
            answer = await stack.http["link"].delete(f"/v1/slices/one-{plane}")
            assert answer.is_success
        view = await stack.active("one", 2, within_s=900)
        assert {each.plane.value for each in view.slices} == {"ub", "rdma", "vpc"}
        await stack.check()


async def test_user_slice_does_not_replace_an_instance_slice(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        view = await stack.active("one", 2)
        body = {
            "allocation": "one",
            "instance": "one",
            "plane": "vpc",
            "members": [member.node for member in view.members],
            "qosClass": "BestEffort",
        }
        assert (await stack.http["link"].put("/v1/slices/more", json=body)).status_code == 200
        await stack.http["link"].post("/v1/slices/more:program")
        await stack.http["link"].delete("/v1/slices/one-vpc")

        async def again() -> bool:
            own = await stack.link.find_slice("one-vpc")
            return own is not None and own.state == "Active"

        await stack.until(again, "its own slice is there again", within_s=900)
        view = await stack.active("one", 2, within_s=900)
        assert {each.name for each in view.slices} == {"one-ub", "one-rdma", "one-vpc"}


async def test_readmitted_slice_is_programmed(tmp_path, monkeypatch):
    """Its programming was lost on the way: whoever looks next finds it there, and nobody asked to program it."""
    program, lost = ControlPlane.program, []

    async def losing(self: ControlPlane, name: str):
        if name == "one-vpc" and not lost:
            lost.append(name)
            raise Unavailable("lost on the way")
        return await program(self, name)

    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await at_work(stack, "one", "await_ready")
        monkeypatch.setattr(ControlPlane, "program", losing)
        assert (await stack.http["link"].delete("/v1/slices/one-vpc")).is_success
        await stack.active("one", 2, within_s=900)
        assert lost
        await stack.check()


async def test_slices_follow_a_member_replaced_during_creation(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await at_work(stack, "one", "await_ready")
        view = await stack.resource.find_allocation("one")
        await stack.resource.replace("one", view.members[1].node, "asked")
        active = await stack.active("one", 3, within_s=900)
        nodes = {member.node for member in active.members}
        assert view.members[1].node not in nodes
        assert all(set(each.members) == nodes for each in await stack.link.slices())
        await stack.check()
