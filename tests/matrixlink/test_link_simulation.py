"""Anything in any order: specs, withdrawals, lost and repaired ports, silent agents, power cuts, service restarts.
After every step nothing is promised twice; when all is repaired everything settles and nothing is left over."""

import contextlib
from random import Random

import pytest
from sqlalchemy import select

from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.planes import Plane
from matrixlink.store.tables import FenceRow, SliceRow
from tests.matrixlink.fleet import NODES, LinkStack, slice_request
from tests.matrixlink.machine import overcommitted_links

NAMES = ["a-ub", "b-ub", "c-rdma", "d-vpc"]
PORTS = ["ub-p0-k00", "ub-p3-k11", "npu5-die1-p2", "rdma-npu5-die0", "vpc"]


async def spec(stack, random, current):
    name = random.choice(NAMES)
    plane = name.split("-")[1]
    floor = random.choice([0.25, 0.5, 1.0]) * {"ub": 300, "rdma": 40, "vpc": 5}[plane]
    members = random.sample(NODES, random.randint(1, 4))
    await stack.client.admit(name, slice_request(plane, members, instance=name, floor_gbps_per_npu=floor))
    current[name] = sorted(members)


async def program(stack, random, current):
    if current:
        await stack.client.program(random.choice(sorted(current)))


async def withdraw(stack, random, current):
    name = random.choice(NAMES)
    current.pop(name, None)
    await stack.client.withdraw(name)


async def break_or_repair(stack, random, current):
    ports = stack.hardware[random.choice(NODES)].ports
    ports.clear()
    ports.update({port: random.choice([0.0, 0.25, 0.5]) for port in random.sample(PORTS, random.randint(0, 2))})


async def toggle_silence(stack, random, current):
    stack.silent ^= {random.choice(NODES)}


async def lose_power(stack, random, current):
    agent = stack.agents[random.choice(NODES)]
    agent.power_lost()
    agent.restore(agent.memory())


async def restart(stack, random, current):
    stack.database.close()
    stack.restart()


async def advance_time(stack, random, current):
    stack.clock.at += random.choice([1, 20, 40])


async def report(stack, random, current):
    await stack.report()


async def run_agents(stack, random, current):
    await stack.work()


async def run_watcher(stack, random, current):
    await stack.health.step()


ACTIONS = [
    spec,
    spec,
    program,
    program,
    withdraw,
    break_or_repair,
    toggle_silence,
    lose_power,
    restart,
    advance_time,
]
ACTIONS += [report, report, run_agents, run_agents, run_watcher, run_watcher]


def assert_no_overcommitment(stack):
    board = stack.slice_controller()
    with board.store.reading() as session:
        keys = [(row.isolation, row.isolation_key) for row in session.scalars(select(SliceRow))]
        fenced = {(row.isolation, row.isolation_key, row.slice) for row in session.scalars(select(FenceRow))}
        current = {(row.isolation, row.isolation_key, row.name) for row in session.scalars(select(SliceRow))}
    assert len(set(keys)) == len(keys)
    for isolation, key, name in current:
        assert all(other == name for i, k, other in fenced if (i, k) == (isolation, key))
    ledger = board.promises.ledger
    assert all(
        ledger.booked(link) <= board.fabric.full(link.partition(".")[2]) + 1e-6
        for owner in ledger.names()
        for link in ledger.reserved(owner)
    )
    assert overcommitted_links(board.promises.healthy_ledger) == []


@pytest.mark.parametrize("seed", range(4))
async def test_any_order_settles(tmp_path, seed):
    random, stack, current = Random(seed), LinkStack(tmp_path), {}
    for _ in range(60):
        with contextlib.suppress(NotFound, Conflict):
            await random.choice(ACTIONS)(stack, random, current)
        assert_no_overcommitment(stack)
    stack.silent.clear()
    for node in stack.hardware.values():
        node.ports.clear()
    await stack.settle(6)
    for view in await stack.client.slices():
        await stack.client.program(view.name)
    await stack.settle(6)
    views = {view.name: view for view in await stack.client.slices()}
    for name, view in views.items():
        assert (view.state, view.floor_kept_gbps_per_npu) == ("Active", view.floor_gbps_per_npu), view
        assert name not in current or sorted(view.members) == current[name]
    for node, agent in stack.agents.items():
        has = {name for name in NAMES if agent.tables(name)}
        assert has == {name for name, view in views.items() if node in view.members}
        assert {name: agent.tables(name)["isolation_key"] for name in has} == {
            name: views[name].isolation_key for name in has
        }
    for name in views:
        await stack.client.withdraw(name)
    await stack.settle()
    assert await stack.client.slices() == []
    board = stack.slice_controller()
    assert board.promises.ledger.names() == set()
    with board.store.reading() as session:
        assert session.scalars(select(FenceRow)).all() == []
        assert board.store.programs(session) == []
    assert all(not board.fabric.degraded_ports(node) for node in NODES)
    assert set(Plane) == set(board.promises.planes)
