"""Parts of a node: each goes its own way, dies are never in two hands, and nothing that happens in between loses one."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.agent import ResourceAgent, node_stages
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.contract.agents import AssignmentView, DesiredPartition
from tests.clocks import LoopClock

NODE = NodeName("sn0-c00-n0")


def agent(seed: int = 1) -> ResourceAgent:
    """An agent of which every change is looked at: no die is ever in two hands."""

    def changed() -> None:
        current = [die for kept in one.memory()["parts"].values() for die in kept["assigned_dies"]]
        assert len(current) == len(set(current)), "a die in two hands"

    one = ResourceAgent(EmulatedNode(NODE), node_stages(), LoopClock(), Random(seed), changed, 30.0)
    return one


def part(allocation: str, *dies: int, **more: int) -> DesiredPartition:
    return DesiredPartition(allocation=allocation, dies=list(dies), **more)


def spec(
    generation: int, *parts: DesiredPartition, wanted: str = "Clean", allocation: str | None = None
) -> AssignmentView:
    return AssignmentView(
        name=NODE, generation=generation, desired_role=wanted, allocation=allocation, parts=list(parts)
    )


def seen(agent: ResourceAgent) -> dict[str, str]:
    return {part.allocation: part.status for part in agent.report().parts}


async def settled(agent: ResourceAgent) -> None:
    """Until all that is requested is done. Seconds of virtual time: far more than any of it takes."""
    for _ in range(300):
        if agent.status == "Clean" and not set(seen(agent).values()) - {"Active", "Failed"}:
            return
        await asyncio.sleep(1)
    raise AssertionError(f"still {seen(agent)}")


@pytest.mark.looptime
async def test_parts_are_prepared_beside_each_other_and_only_once_the_node_is_enrolled():
    one = agent()
    life = asyncio.create_task(one.run())
    one.ensure(spec(2, part("a", 0, 1), part("b", 2, 3), part("pool", cpus=1, memory_gib=64)))
    while one.status != "Clean":
        assert seen(one) == {"a": "Preparing", "b": "Preparing", "pool": "Preparing"}
        await asyncio.sleep(1)
    started = asyncio.get_running_loop().time()
    await settled(one)
    assert asyncio.get_running_loop().time() - started < 9, "one after another they would take three times that"
    one.ensure(spec(3, part("b", 2, 3, rank=4)))
    assert seen(one) == {"a": "Releasing", "b": "Active", "pool": "Releasing"}, "a rank is a name and no work"
    await settled(one)
    assert seen(one) == {"b": "Active"}
    life.cancel()


@pytest.mark.looptime
async def test_die_changes_holders_only_after_wiping():
    one = agent()
    life = asyncio.create_task(one.run())
    one.ensure(spec(2, part("a", 0), part("b", 1)))
    await settled(one)
    one.ensure(spec(3, part("a", 1), part("b", 0)))
    await settled(one)
    kept = one.memory()["parts"]
    assert (kept["a"]["assigned_dies"], kept["b"]["assigned_dies"]) == ([1], [0])
    life.cancel()


@pytest.mark.looptime
async def test_unavailable_part_fails_and_others_continue():
    one = agent()
    life = asyncio.create_task(one.run())
    one.ensure(spec(2, part("a", 0, 1), part("b", 1, 2), part("c", 3)))
    await settled(one)
    assert seen(one) == {"a": "Failed", "b": "Failed", "c": "Active"}
    one.ensure(spec(3, part("b", 1, 2), part("c", 3)))
    await settled(one)
    assert seen(one) == {"b": "Active", "c": "Active"}
    life.cancel()


@pytest.mark.looptime
async def test_after_a_loss_of_power_parts_are_prepared_again_and_released_ones_still_wiped():
    one = agent()
    life = asyncio.create_task(one.run())
    one.ensure(spec(2, part("a", 0), part("b", 1)))
    await settled(one)
    one.ensure(spec(3, part("a", 0)))
    one.power_lost()
    life.cancel()
    one.restore(one.memory())
    assert seen(one) == {"a": "Preparing", "b": "Releasing"}
    life = asyncio.create_task(one.run())
    await settled(one)
    assert seen(one) == {"a": "Active"}
    life.cancel()


HAPPENINGS = st.one_of(
    st.tuples(
        st.just("ensure"),
        st.dictionaries(st.sampled_from("abc"), st.frozensets(st.integers(0, 5), max_size=3), max_size=3),
    ),
    st.tuples(st.sampled_from(["restart", "power"]), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 12)),
)


@pytest.mark.looptime
@settings(deadline=None)
@given(happenings=st.lists(HAPPENINGS, max_size=12), seed=st.integers(0, 3))
async def test_parts_converge_to_the_newest_spec(happenings, seed):
    one, generation, last = agent(seed), 1, {}
    life = asyncio.create_task(one.run())
    await settled(one)
    for what, value in happenings:
        if what == "ensure":
            last = _apart(value)
            generation += 1
            one.ensure(spec(generation, *(part(name, *dies) for name, dies in last.items())))
        elif what == "wait":
            await asyncio.sleep(value)
        else:
            life.cancel()
            if what == "power":
                one.power_lost()
                assert "Active" not in seen(one).values()
            memory = one.memory()
            one = agent(seed)
            one.restore(memory)
            life = asyncio.create_task(one.run())
    assert not life.done(), "the agent died of what it saw"
    await settled(one)
    kept = one.memory()["parts"]
    assert {name: frozenset(each["assigned_dies"]) for name, each in kept.items()} == last
    assert seen(one) == dict.fromkeys(last, "Active")
    life.cancel()


def _apart(desired: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """The same with every die requested once."""
    apart: dict[str, frozenset[int]] = {}
    for name, dies in desired.items():
        apart[name] = dies.difference(*apart.values())
    return apart
