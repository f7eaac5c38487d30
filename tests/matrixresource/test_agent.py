"""What brings a node nearer to what is requested of it: a table, and the property that it always arrives."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixcommon.model.errors import StaleGeneration
from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.agent import AgentTask, ResourceAgent, next_task, node_stages, target_status
from matrixresource.agent.hardware import EmulatedNode, InjectedFault
from matrixresource.contract.agents import AssignmentView
from tests.clocks import LoopClock

NODE = NodeName("sn0-c00-n0")


@pytest.mark.parametrize(
    ("sentence", "status", "holds", "wanted", "allocation", "deployed", "expected"),
    [
        ("a new node is enrolled first", "Verifying", None, "Member", "a", False, AgentTask("enrol", "Clean", None)),
        ("clean and requested clean", "Clean", None, "Clean", None, False, None),
        ("clean becomes member", "Clean", None, "Member", "a", False, AgentTask("deploy", "Active", "a")),
        ("clean becomes spare", "Clean", None, "Spare", "a", False, AgentTask("prepare", "Spare", "a")),
        ("a spare only joins", "Spare", "a", "Member", "a", False, AgentTask("promote", "Active", "a")),
        (
            "a member of another is cleaned first",
            "Active",
            "b",
            "Member",
            "a",
            False,
            AgentTask("clean", "Clean", None),
        ),
        ("a spare of another is cleaned first", "Spare", "b", "Spare", "a", False, AgentTask("clean", "Clean", None)),
        (
            "a member that should be spare is cleaned",
            "Active",
            "a",
            "Spare",
            "a",
            False,
            AgentTask("clean", "Clean", None),
        ),
        ("half cleaned is cleaned again", "Cleaning", "a", "Member", "a", False, AgentTask("clean", "Clean", None)),
        ("after a loss of power it rejoins", "Deploying", "a", "Member", "a", True, AgentTask("rejoin", "Active", "a")),
        ("half deployed is deployed again", "Deploying", "a", "Member", "a", False, AgentTask("deploy", "Active", "a")),
        ("switched off it starts", "Off", "a", "Member", "a", True, AgentTask("start", "Active", "a")),
        ("half switched off it starts", "Stopping", "a", "Member", "a", True, AgentTask("start", "Active", "a")),
        ("off and never deployed", "Off", "a", "Member", "a", False, AgentTask("deploy", "Active", "a")),
        ("a member that is off and should be spare", "Off", "a", "Spare", "a", True, AgentTask("clean", "Clean", None)),
        ("off and released: cleaned", "Off", "a", "Clean", None, True, AgentTask("clean", "Clean", None)),
        ("released: cleaned", "Active", "a", "Clean", None, True, AgentTask("clean", "Clean", None)),
    ],
)
def test_next_work(sentence, status, holds, wanted, allocation, deployed, expected):
    assert next_task(status, holds, wanted, allocation, deployed) == expected, sentence


@pytest.mark.parametrize(
    ("sentence", "status", "holds", "expected"),
    [
        ("a member is switched off", "Active", "a", AgentTask("shut-down", "Off", "a")),
        ("half deployed it is switched off", "Deploying", "a", AgentTask("shut-down", "Off", "a")),
        ("a clean node is switched off for its holder", "Clean", None, AgentTask("shut-down", "Off", "a")),
        ("a member of another is cleaned first", "Active", "b", AgentTask("clean", "Clean", None)),
        ("off for another it is cleaned first", "Off", "b", AgentTask("clean", "Clean", None)),
        ("off it stays", "Off", "a", None),
    ],
)
def test_next_work_of_a_node_that_is_to_be_off(sentence, status, holds, expected):
    assert next_task(status, holds, "Member", "a", deployed=True, power="Off") == expected, sentence


@given(
    status=st.sampled_from(
        ["Verifying", "Clean", "Preparing", "Spare", "Deploying", "Active", "Stopping", "Off", "Cleaning"]
    ),
    holds=st.sampled_from([None, "a", "b"]),
    wanted=st.sampled_from(["Clean", "Spare", "Member"]),
    deployed=st.booleans(),
    power=st.sampled_from(["On", "Off"]),
)
def test_every_spec_is_reached_from_every_status(status, holds, wanted, deployed, power):
    allocation = None if wanted == "Clean" else "a"
    for _ in range(4):
        work = next_task(status, holds, wanted, allocation, deployed, power)
        if work is None:
            break
        deployed = work.final_status == "Active" or (work.final_status == "Off" and deployed)
        status, holds = work.final_status, work.allocation
    assert (status, holds if wanted != "Clean" else None) == (target_status(wanted, power), allocation)


def agent() -> ResourceAgent:
    return ResourceAgent(EmulatedNode(NODE), node_stages(), LoopClock(), Random(1), lambda: None, 30.0)


def spec(generation: int, wanted: str, allocation: str | None = None) -> AssignmentView:
    return AssignmentView(name=NODE, generation=generation, desired_role=wanted, allocation=allocation)


async def until(agent: ResourceAgent, status: str) -> None:
    while agent.status != status or agent.stage is not None:
        await asyncio.sleep(1)  # virtual time: the condition is looked at once a second of it


@pytest.mark.looptime
async def test_an_agent_deploys_and_cleans_in_the_time_its_stages_take():
    one = agent()
    life = asyncio.create_task(one.run())
    await until(one, "Clean")
    started = asyncio.get_running_loop().time()
    one.ensure(spec(2, "Member", "a"))
    assert one.report().status == "Deploying", "a report made right now must not say Clean for the new spec"
    await until(one, "Active")
    assert 84 <= asyncio.get_running_loop().time() - started <= 134
    one.ensure(spec(3, "Clean"))
    await until(one, "Clean")
    assert one.holds is None
    life.cancel()


@pytest.mark.looptime
async def test_an_older_spec_is_refused_and_a_newer_one_overtakes_between_stages():
    one = agent()
    life = asyncio.create_task(one.run())
    await until(one, "Clean")
    one.ensure(spec(5, "Member", "a"))
    with pytest.raises(StaleGeneration):
        one.ensure(spec(4, "Clean"))
    await asyncio.sleep(1)
    one.ensure(spec(6, "Clean"))
    await until(one, "Clean")
    assert one.report().generation == 6
    life.cancel()


def test_agent_memory_and_epoch_survive_restarts():
    one = agent()
    one.ensure(spec(2, "Member", "a"))
    two = agent()
    two.restore(one.memory())
    assert (two.generation, two.desired_role, two.allocation, two.epoch) == (2, "Member", "a", one.epoch + 1)
    first, second = two.report(), two.report()
    assert (first.epoch, first.sequence) < (second.epoch, second.sequence)


def test_faults_change_the_hardware_and_are_repaired_when_they_go():
    node = EmulatedNode(NODE)
    down = InjectedFault(name="a", kind="node-down", target=NODE)
    slow = InjectedFault(name="b", kind="link-degraded", target=NODE, parameters={"port": "vpc", "share": 0.25})
    ecc = InjectedFault(name="c", kind="npu-fault", target=NODE, parameters={"npu": 3, "code": "020001001"})
    node.apply_faults([down, slow, ecc])
    assert (node.responsive, node.ports, node.codes) == (False, {"vpc": 0.25}, [("020001001", "npu3")])
    node.apply_faults([ecc])
    assert (node.responsive, node.ports) == (True, {})
