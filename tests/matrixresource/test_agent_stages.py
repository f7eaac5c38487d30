"""The stages of a node's initialisation: their order and times, odds of failure, tries, and what a failure leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from matrixcommon.emulation.stages import Stages, stages_from_document
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.agent import ResourceAgent, node_stages
from matrixresource.agent.hardware import EmulatedNode, InjectedFault
from matrixresource.contract.agents import AssignmentView, NodeReport
from tests.clocks import LoopClock

NODE = NodeName("sn0-c00-n0")
BEFORE = {"deploy": 108, "prepare": 100, "promote": 8, "rejoin": 43, "start": 58, "enrol": 30, "clean": 35}
"""What these took when they had fewer stages; they take no longer now."""


def agent(stages: Stages | None = None, seed: int = 1) -> ResourceAgent:
    return ResourceAgent(EmulatedNode(NODE), stages or node_stages(), LoopClock(), Random(seed), lambda: None, 30.0)


def spec(generation: int, wanted: str, allocation: str | None = None, task: str | None = None) -> AssignmentView:
    return AssignmentView(
        name=NODE,
        generation=generation,
        desired_role=wanted,
        allocation=allocation,
        task=task,
        task_generation=generation,
    )


def with_odds(work: str, stage: str, odds: float, attempts: int) -> Stages:
    stages = node_stages()
    changed = tuple(
        replace(each, odds=odds, attempts=attempts, why="it smells") if each.stage == stage else each
        for each in stages[work]
    )
    return stages | {work: changed}


async def reports(one: ResourceAgent, until: str) -> list[NodeReport]:
    """What it reports each second, up to a status."""
    found = [one.report()]
    while found[-1].status != until:
        await asyncio.sleep(1)
        found.append(one.report())
        assert len(found) < 3600, f"it never reports {until}"
    return found


@pytest.mark.parametrize("work", BEFORE)
def test_work_takes_no_longer_than_before_it_had_these_stages(work):
    assert sum(stage.delay_s for stage in node_stages()[work]) == BEFORE[work]


def test_nothing_fails_unless_odds_are_given():
    assert {stage.odds for stages in node_stages().values() for stage in stages} == {0.0}
    stages = stages_from_document(
        {"deploy": [{"stage": "boot", "status": "Deploying", "delay_s": 1, "odds": 0.5}]}, "a file"
    )
    failed = sum(stages["deploy"][0].fails(random) for random in [Random(1)] for _ in range(1000))
    assert 400 < failed < 600


def test_a_name_that_no_report_could_carry_is_refused():
    with pytest.raises(InvalidField, match="has more than 40 characters") as refused:
        stages_from_document({"deploy": [{"stage": "s" * 41, "status": "Deploying", "delay_s": 1}]}, "a file")
    assert refused.value.field == "stages.deploy"


@pytest.mark.looptime
async def test_node_reports_each_stage_of_its_start():
    one = agent()
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Member", "a"))
    seen = list(dict.fromkeys(report.stage for report in await reports(one, "Active") if report.stage))
    assert seen == [
        "power", "firmware-check", "write-image", "boot", "load-driver", "npu-self-test", "bring-up-ub", "bring-up-rdma",
        "bring-up-vpc", "join",
    ]  # fmt: skip
    life.cancel()


@pytest.mark.looptime
async def test_the_driver_is_named_with_its_version():
    one = agent()
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Member", "a"))
    found = await reports(one, "Active")
    assert {report.message for report in found if report.stage == "load-driver"} == {"CANN 8.2.RC1"}
    assert found[-1].message == ""
    life.cancel()


@pytest.mark.looptime
async def test_failing_stage_is_retried_and_then_fails_with_its_reason():
    one = agent(with_odds("deploy", "npu-self-test", odds=1.0, attempts=3))
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Member", "a"))
    found = await reports(one, "Failed")
    assert (found[-1].stage, found[-1].message) == ("npu-self-test", "it smells (attempt 3 of 3)")
    assert {"it smells (attempt 1 of 3)", "it smells (attempt 2 of 3)"} <= {report.message for report in found}
    await asyncio.sleep(600)
    assert one.report().status == "Failed", "it does not try again by itself"
    life.cancel()
    two = agent()
    two.restore(one.memory())
    life = asyncio.create_task(two.run())
    await asyncio.sleep(600)
    assert (two.report().status, two.report().stage) == ("Failed", "npu-self-test"), "nor in its next life"
    two.ensure(spec(3, "Clean"))
    assert {report.status for report in await reports(two, "Clean")} == {"Cleaning", "Clean"}, "it is wiped"
    life.cancel()


@pytest.mark.looptime
async def test_a_stage_that_fails_once_costs_its_time_again_and_no_more():
    odds = with_odds("deploy", "npu-self-test", odds=0.5, attempts=20)
    one = agent(odds, seed=3)
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Member", "a"))
    found = await reports(one, "Active")
    assert any("attempt" in report.message for report in found), "this seed has it fail once"
    life.cancel()


@pytest.mark.looptime
async def test_a_task_is_done_once_by_a_clean_node_and_fails_as_its_hardware_does():
    one = agent()
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Clean", task="verify"))
    assert one.report().status == "Verifying", "a report made right now must not say that it has passed"
    await reports(one, "Clean")
    one.parts.wake()
    await asyncio.sleep(60)
    assert one.report().status == "Clean", "once"
    fault = {"name": "bad", "kind": "stage-failure", "target": NODE, "parameters": {"stage": "bring-up-ub"}}
    one.node.apply_faults([InjectedFault.model_validate(fault)])
    one.ensure(spec(3, "Clean", task="verify"))
    assert (await reports(one, "Failed"))[-1].stage == "bring-up-ub"
    one.node.apply_faults([])
    one.ensure(spec(4, "Clean", task="verify"))
    assert {report.status for report in await reports(one, "Clean")} == {"Verifying", "Clean"}, "nothing to wipe"
    life.cancel()


@pytest.mark.looptime
async def test_node_is_wiped_before_a_check():
    one = agent()
    life = asyncio.create_task(one.run())
    await reports(one, "Clean")
    one.ensure(spec(2, "Member", "a"))
    await reports(one, "Active")
    one.ensure(spec(3, "Clean", task="verify"))
    states = list(dict.fromkeys(report.status for report in await reports(one, "Clean")))
    assert states == ["Cleaning", "Verifying", "Clean"]
    life.cancel()
