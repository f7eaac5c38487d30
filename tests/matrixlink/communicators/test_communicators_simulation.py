"""Seeded histories of slices, communicators, failing and repaired ports, silent agents and killed services. After every
step no flow crosses a link that is known dead or leaves its slice, what each link carries is within what it has, and a
service started anew over the same tables tells the same."""

from random import Random

import pytest

from matrixlink.contract.communicators import CommunicatorRequest, Pattern, Routing
from matrixresource.topology import Supernode
from tests.matrixlink.fleet import NODES, LinkStack, slice_request

STEPS = 12
SHOWN_TO_GBPS = 1e-6
"""A rate is shown to six digits, so that each of the flows on a link may be reported half of that too high."""
PORTS = [link.port for link in Supernode().links(NODES[0], "ub") if link.kind != "die-die"]


class History:
    """One stack under chance."""

    def __init__(self, stack, seed):
        self.stack, self.chance = stack, Random(seed)

    async def step(self):
        action = self.chance.choice([self.break_ports, self.break_ports, self.repair, self.lose_chip, self.ask, self.ask,
                                   self.forget, self.change_members, self.withdraw, self.restart])  # fmt: skip
        await action()
        silent = self.chance.sample(NODES, self.chance.choice([0, 0, 1]))
        with self.stack.quiet(*silent):
            await self.stack.settle(1)

    async def break_ports(self):
        for _ in range(self.chance.randint(1, 30)):
            node = self.stack.hardware[self.chance.choice(NODES)]
            node.ports[self.chance.choice(PORTS)] = self.chance.choice([0.0, 0.0, 0.25, 0.5])

    async def lose_chip(self):
        port = f"ub-p{self.chance.randrange(7)}-k{self.chance.randrange(16):02d}"
        for node in self.stack.hardware.values():
            node.ports[port] = 0.0

    async def repair(self):
        for node in self.stack.hardware.values():
            for port in self.chance.sample(sorted(node.ports), len(node.ports) // 2):
                del node.ports[port]

    async def ask(self):
        slices = [view for view in await self.stack.client.slices() if view.state != "Withdrawing"]
        if not slices:
            return await self.change_members()
        pattern = self.chance.choice(list(Pattern))
        routing = self.chance.choice(
            [each for each in Routing if each not in ("planned", "spray") or pattern != "allToAll"]
        )
        request = CommunicatorRequest(
            slice=self.chance.choice(slices).name, pattern=pattern, routing=routing, seed=self.chance.randrange(99),
            offered_gbps=self.chance.choice([None, 40.0]),
        )  # fmt: skip
        name = f"c-{request.slice}-{self.chance.randrange(2)}"
        await self.stack.client.ensure_communicator(name, request)

    async def forget(self):
        for view in (await self.stack.client.communicators())[:1]:
            await self.stack.client.delete_communicator(view.name)

    async def change_members(self):
        name = self.chance.choice(["a-ub", "b-ub"])
        members = self.chance.sample(NODES, self.chance.randint(1, 4))
        current = await self.stack.client.find_slice(name)
        if current is None or current.state != "Withdrawing":
            await self.stack.client.admit(
                name, slice_request(members=members, instance=name[0], qos_class="BestEffort")
            )
            await self.stack.client.program(name)

    async def withdraw(self):
        await self.stack.client.withdraw(self.chance.choice(["a-ub", "b-ub"]))

    async def restart(self):
        self.stack.restart()

    # -- what must hold ------------------------------------------------------------------------------------------------

    async def reported(self):
        views = await self.stack.client.communicators()
        flows = {view.name: await self.stack.client.communicator_flows(view.name) for view in views}
        return {view.name: (view.state, view.generation) for view in views}, flows

    async def check(self):
        states, flows = await self.reported()
        fabric = self.stack.slice_controller().fabric
        members = {view.name: set(view.members) for view in await self.stack.client.slices()}
        carried: dict[tuple[str, str], list[float]] = {}
        for view in await self.stack.client.communicators():
            assert view.slice in members
            for flow in flows[view.name]:
                assert {end.rpartition("-npu")[0] for end in (flow.source, flow.target)} <= members[view.slice]
                assert bool(flow.path) == (flow.gbps > 0)
                for at, link in enumerate(flow.path):
                    assert fabric.capacity(link) > 0
                    way = "up" if at < len(flow.path) / 2 else "down"
                    carried.setdefault((link, way), []).append(flow.gbps)
        for (link, _), rates in carried.items():
            assert sum(rates) <= fabric.capacity(link) * (1 + 1e-9) + len(rates) * SHOWN_TO_GBPS / 2
        return states, flows

    async def check_restart(self, states, flows):
        self.stack.restart()
        again_states, again = await self.reported()
        assert again_states == states
        assert again.keys() == flows.keys()
        for name, before in flows.items():
            assert [(f.name, f.path, f.weight) for f in again[name]] == [(f.name, f.path, f.weight) for f in before]
            assert [f.gbps for f in again[name]] == pytest.approx([f.gbps for f in before], abs=1e-5)


@pytest.mark.parametrize("seed", range(1, 3))
async def test_flows_follow_known_conditions(tmp_path, seed):
    history = History(LinkStack(tmp_path), seed)
    await history.change_members()
    for step in range(STEPS):
        await history.step()
        reported = await history.check()
        if step % 5 == 4:
            await history.check_restart(*reported)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
async def test_flows_follow_known_conditions_over_many_histories(tmp_path, seed):
    await test_flows_follow_known_conditions(tmp_path, seed)
