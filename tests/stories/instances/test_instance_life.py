"""The life of an instance, on the whole stack in virtual time: created, scaled, repaired, refused, deleted."""

from __future__ import annotations

import asyncio

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


def reported(view, type: str) -> tuple[str, str]:
    found = next(c for c in view.conditions if c.type == type)
    return found.status, found.reason


async def test_instance_becomes_active_on_packed_nodes_and_three_planes(tmp_path):
    async with Stack(tmp_path) as stack:
        view = await stack.apply("one", 6, spares=1)
        assert view.state == "Provisioning"
        view = await stack.active("one", 6)
        cabinets = {member.cabinet for member in view.members if member.role == "member"}
        assert len(cabinets) == 2
        assert {each.plane.value for each in view.slices} == {"ub", "rdma", "vpc"}
        assert all(each.programmed for each in view.slices)
        for type in ("Scheduled", "NodesReady", "LinksReady", "QosSatisfied", "SparesAvailable", "Ready"):
            assert reported(view, type)[0] == "True", type
        assert reported(view, "Degraded")[0] == "False"
        for member in view.members:
            agent = stack.fleet.agent("resource", member.node)
            assert (agent.status, agent.holds) == ("Active" if member.role == "member" else "Spare", "one")
        await stack.check()


async def test_ensure_is_idempotent(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        first = await stack.active("one", 4)
        again = await stack.apply("one", 4)
        assert (again.generation, again.state) == (first.generation, "Active")


async def test_instance_grows_and_shrinks_in_place(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        before = await stack.active("one", 4)
        await stack.apply("one", 7)
        grown = await stack.active("one", 7)
        kept = {(m.node, m.rank) for m in before.members}
        assert kept <= {(m.node, m.rank) for m in grown.members}, "what was there stays, with its rank"
        await stack.apply("one", 3)
        await stack.active("one", 3)
        await stack.check()
        view = await stack.link.find_slice("one-ub")
        assert view is not None
        assert len(view.members) == 3


async def test_deletion_releases_everything(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 8, spares=2)
        await stack.active("one", 8)
        assert not await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_deletion_while_provisioning_releases_everything(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 8, spares=2)

        async def deploying() -> bool:
            nodes = [
                node for node in await stack.resource.nodes() if node.allocation == "one" and node.role == "member"
            ]
            return len(nodes) == 8 and {node.state for node in nodes} == {"Deploying"}

        await stack.until(deploying, "every member is being deployed", within_s=60)
        assert (await stack.compute.find_instance("one")).state == "Provisioning"
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_lost_node_is_replaced_by_the_spare_which_is_replenished(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 6, spares=1)
        before = await stack.active("one", 6)
        lost = before.members[2]
        spare = next(m.node for m in before.members if m.role == "spare")
        stack.impair("f", "node-down", lost.node)

        async def repaired() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and view.repairs == 1 and view.state == "Active"

        seconds = await stack.until(repaired, "the instance is repaired", within_s=600)
        assert seconds > 30, "nobody reported the control plane: it has to miss the heartbeats first"
        view = await stack.active("one", 6)
        assert next(m.node for m in view.members if m.rank == lost.rank) == spare
        assert lost.node not in {m.node for m in view.members}
        await stack.until(lambda: _spare_ready(stack), "a new spare stands ready", within_s=900)
        await stack.check()
        stack.repair("f")
        await stack.until(lambda: _available(stack, lost.node), "the lost node was cleaned and is free", within_s=900)
        assert stack.fleet.agent("resource", lost.node).holds is None


async def _spare_ready(stack: Stack) -> bool:
    view = await stack.compute.find_instance("one")
    return view is not None and reported(view, "SparesAvailable")[0] == "True"


async def _available(stack: Stack, node: str) -> bool:
    return (await stack.get("resource", f"/v1/nodes/{node}")).json()["state"] == "Available"


async def test_fatal_fault_replaces_its_node_and_a_harmless_code_does_not(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        view = await stack.active("one", 4)
        stack.impair("harmless", "npu-fault", view.members[0].node, npu=1, code="010001001")
        stack.impair("severe", "npu-fault", view.members[1].node, npu=2, code="020001001")

        async def moved() -> bool:
            now = await stack.active("one", 4)
            return view.members[1].node not in {m.node for m in now.members}

        await stack.until(moved, "the severe one was replaced", within_s=600)
        after = await stack.active("one", 4)
        assert view.members[0].node in {m.node for m in after.members}
        assert after.repairs == 1
        node = (await stack.get("resource", f"/v1/nodes/{view.members[0].node}")).json()
        assert node["health"] == "SubHealthy"


async def test_safety_stop_keeps_an_instance_when_many_nodes_are_silent(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 12, spares=2)
        before = await stack.active("one", 12)
        for index, member in enumerate(before.members[:10]):
            stack.impair(f"f{index}", "agent-hang", member.node)

        async def current() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and reported(view, "Degraded") == ("True", "SafetyStop")

        await stack.until(current, "the safety stop holds", within_s=600)
        for _ in range(20):
            await asyncio.sleep(30)
            assert await current(), "it holds as long as they are silent"
            during = await stack.compute.find_instance("one")
            assert {m.node for m in during.members} == {m.node for m in before.members}
        for index in range(10):
            stack.repair(f"f{index}")
        after = await stack.active("one", 12)
        assert {m.node for m in after.members} == {m.node for m in before.members}
        assert after.repairs == 0


async def test_unschedulable_instance_shows_why_and_starts_once_it_fits(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("big", 40)
        await stack.active("big", 40)
        await stack.apply("more", 10)

        async def refused() -> bool:
            view = await stack.compute.find_instance("more")
            return (
                view is not None
                and view.state == "Pending"
                and reported(view, "Scheduled")[1] == "InsufficientCapacity"
            )

        await stack.until(refused, "refused with its reason", within_s=300)
        operation = (await stack.get("compute", "/v1/operations", params={"filter": "target=more"})).json()["items"][0]
        assert operation["error"]["blocking"], "the refusal says per cabinet what stands in the way"
        await stack.compute.delete_instance("big")
        await stack.active("more", 10)
        await stack.check()


@pytest.mark.parametrize(
    ("network", "state", "reason"),
    [
        ({"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 500}}, "Failed", "InvalidField"),
        ({"vpc": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 6}}, "Pending", "InsufficientBandwidth"),
    ],
)
async def test_infeasible_floor_rolls_back_the_reservation(tmp_path, network, state, reason):
    async with Stack(tmp_path) as stack:
        stack.impair("slow", "link-degraded", "sn0-c00-n0", port="vpc", share=0.25)

        async def noticed() -> bool:
            link = (await stack.get("link", f"/v1/links/{card['name']}")).json()
            return link["gbps"] == pytest.approx(0.25 * link["builtGbps"])

        (card,) = await stack.link.links(plane="vpc", node="sn0-c00-n0")
        await stack.until(noticed, "MatrixLink has heard that the port is slow", within_s=60)
        await stack.apply("greedy", 4, network=network)

        async def refused() -> bool:
            view = await stack.compute.find_instance("greedy")
            return view is not None and view.state == state and reported(view, "Scheduled")[1] == reason

        await stack.until(refused, "refused with its reason", within_s=300)
        assert await stack.resource.allocations() == []


async def test_refused_scale_leaves_the_instance_unchanged(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await stack.apply("one", 100)

        async def refused() -> bool:
            view = await stack.compute.find_instance("one")
            return (
                view is not None
                and view.state == "Active"
                and reported(view, "Progressing") == ("False", "ExceedsDomain")
            )

        await stack.until(refused, "refused with its reason", within_s=300)
        view = await stack.compute.find_instance("one")
        assert view is not None
        assert view.ready_nodes == 4
        await stack.check()


async def test_orphaned_allocation_and_slice_are_released(tmp_path):
    async with Stack(tmp_path) as stack:
        body = {"nodes": 2, "labels": {"cloudmatrix.io/instance": "nobody"}}
        await stack.http["resource"].put("/v1/allocations/nobody", json=body)
        mine = {"nodes": 2}
        await stack.http["resource"].put("/v1/allocations/by-hand", json=mine)

        async def freed() -> bool:
            return [each.name for each in await stack.resource.allocations()] == ["by-hand"]

        await stack.until(freed, "only what bears no instance's name is left", within_s=600)


async def test_no_periodic_task_fails_during_an_instance_life(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        await stack.active("one", 4)
        for name in ("resource", "link", "compute"):

            async def come_round(name: str = name) -> bool:
                return all(
                    runs >= 2 for runs in (await counted(stack, name, "cloudmatrix_watcher_runs_total")).values()
                )

            await stack.until(come_round, f"every watcher of {name} has come round, the slowest too", every_s=60)
            failures = await counted(stack, name, "cloudmatrix_watcher_failures_total")
            assert failures
            assert set(failures.values()) == {0.0}, (name, failures)


async def counted(stack: Stack, service: str, metric: str) -> dict[str, float]:
    """A metric of a service's watchers, by watcher."""
    text = (await stack.get(service, "/metrics")).text
    lines = [line.split() for line in text.splitlines() if line.startswith(metric + "{")]
    return {labels: float(value) for labels, value in lines}
