"""LinkAgent: newest spec wins, older ones are refused, tables outlive a cut line and not the power, time passes."""

from random import Random

import pytest

from matrixcommon.model.errors import InvalidField, StaleGeneration
from matrixcommon.model.hardware_names import NodeName
from matrixlink.agent import LinkAgent, link_stages
from matrixlink.contract.programs import DesiredProgram, ProgramView
from matrixlink.fabric.condition.fabric import Fabric
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology import Supernode
from tests.clocks import FixedClock

BUILT = Fabric([Supernode()]).built


@pytest.fixture
def change_notifications():
    return []


@pytest.fixture
def agent(change_notifications):
    node = EmulatedNode(NodeName("sn0-c00-n0"))
    return LinkAgent(node, BUILT, link_stages(), FixedClock(), Random(1), lambda: change_notifications.append(1), 30.0)


def make_program(generation=1, action="program", slice="s", **changes):
    body = {
        "isolation": "partitionKey",
        "isolation_key": 2,
        "qos_class": "Guaranteed",
        "weight": 4,
        "instance": "i",
        "floor_gbps": 8,
    }
    body |= {"name": f"{slice}.n", "slice": slice, "node": "sn0-c00-n0", "plane": "ub", "peers": ["sn0-c00-n1"]}
    return ProgramView.model_validate(body | {"generation": generation, "action": action} | changes)


def reported_programs(agent):
    return {p.slice: (p.generation, p.status) for p in agent.report().programs}


async def test_a_spec_is_processed_in_stages(agent, change_notifications):
    agent.ensure(make_program())
    assert reported_programs(agent) == {"s": (1, "Programming")}
    assert agent.tables("s") is None
    await agent.drain_queue()
    assert reported_programs(agent) == {"s": (1, "Programmed")}
    assert agent._clock.now() > FixedClock().now() + 1
    assert len(change_notifications) == 2


async def test_an_older_spec_is_refused_and_a_repeated_one_ignored(agent, change_notifications):
    agent.ensure(make_program(3))
    await agent.drain_queue()
    before = len(change_notifications)
    agent.ensure(make_program(3))
    assert len(change_notifications) == before
    with pytest.raises(StaleGeneration):
        agent.ensure(make_program(2))
    agent.apply_answer([DesiredProgram(slice="s", generation=2, action="clear")])
    assert reported_programs(agent) == {"s": (3, "Programmed")}
    assert agent.counters["stale"] == 2


async def test_a_newer_spec_supersedes_work_in_progress(agent):
    agent.ensure(make_program(1))
    sleep, agent._clock.sleep = agent._clock.sleep, None

    async def overtaken(seconds):
        agent._clock.sleep = sleep
        agent.ensure(make_program(2, isolation_key=9))
        await sleep(seconds)

    agent._clock.sleep = overtaken
    await agent.drain_queue()
    assert reported_programs(agent) == {"s": (2, "Programmed")}
    assert agent.tables("s")["isolation_key"] == 9
    assert agent.counters["programmed"] == 1


async def test_small_changes_take_less_time(agent):
    took = []
    for generation, changes in ((1, {}), (2, {}), (3, {"peers": ["sn0-c00-n2"]})):
        before = agent._clock.now()
        agent.ensure(make_program(generation, **changes))
        await agent.drain_queue()
        took.append(agent._clock.now() - before)
    assert took[0] > took[2] > took[1] > 0


async def test_a_cleared_slice_is_forgotten(agent):
    agent.ensure(make_program(1))
    await agent.drain_queue()
    agent.ensure(make_program(2, "clear"))
    assert agent.tables("s") is not None
    await agent.drain_queue()
    assert reported_programs(agent) == {"s": (2, "Cleared")}
    agent.apply_answer([DesiredProgram(slice="s", generation=2, action="clear")])
    assert reported_programs(agent) == {"s": (2, "Cleared")}
    agent.apply_answer([])
    assert reported_programs(agent) == {}


async def test_a_disconnected_agent_keeps_its_configuration_across_a_restart(agent):
    agent.ensure(make_program(1))
    await agent.drain_queue()
    again = LinkAgent(agent.hardware, BUILT, link_stages(), FixedClock(), Random(1))
    again.restore(agent.memory())
    assert again.tables("s") == agent.tables("s")
    report = again.report()
    assert (report.epoch, report.sequence) == (2, 1)
    assert [p.status for p in report.programs] == ["Programmed"]


async def test_a_power_loss_empties_tables_and_the_agent_rewrites_them(agent):
    agent.ensure(make_program(1))
    await agent.drain_queue()
    agent.power_lost()
    assert agent.tables("s") is None
    assert reported_programs(agent) == {"s": (1, "Programming")}
    await agent.drain_queue()
    assert agent.tables("s") is not None


def test_ports_below_their_rate_are_reported(agent):
    agent.hardware.ports |= {"ub-p3-k11": 0.25, "vpc": 0.0, "rdma-npu5-die0": 1.0}
    assert {p.port: p.gbps for p in agent.report().ports} == {"ub-p3-k11": 7.0, "vpc": 0.0}


def test_custom_stages(tmp_path):
    (tmp_path / "s.yaml").write_text("clear:\n  - {stage: wait, status: Programming, delay_s: 5}\n")
    assert [s.delay_s for s in link_stages(tmp_path / "s.yaml")["clear"]] == [5]
    assert link_stages(tmp_path / "s.yaml")["program"] == link_stages()["program"]
    (tmp_path / "s.yaml").write_text("clear:\n  - {pause: 5}\n")
    with pytest.raises(InvalidField):
        link_stages(tmp_path / "s.yaml")
