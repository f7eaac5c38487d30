"""Drift: what is in a switch's tables against what was programmed, found by the agent's read-back or by the digest, and
written again; an older generation is never applied, and a cut-off agent forwards on."""

import json

import pytest

from matrixlink.model.program_digest import digest
from matrixresource.agent.hardware import InjectedFault
from tests.matrixlink.fleet import NODES, LinkStack, slice_request
from tests.matrixlink.test_link_agent import agent, change_notifications, make_program, reported_programs  # noqa: F401


def inject(stack, kind, name="drift", node=NODES[1], **parameters):
    fault = {"name": name, "kind": kind, "target": node, "parameters": parameters}
    stack.hardware[node].apply_faults([InjectedFault.model_validate(fault)])


def test_a_digest_covers_the_contents_of_the_tables():
    request = make_program(3).model_dump(mode="json")
    assert digest(request) == digest(json.loads(json.dumps(request)))
    assert digest(request) == digest(request | {"generation": 9, "message": "x", "weight": 4.0})
    assert digest(request) != digest(request | {"isolation_key": 3})
    assert digest(request) != digest(request | {"peers": []})


@pytest.mark.parametrize("kind", ["tables-lost", "tables-corrupted"])
async def test_the_agent_detects_reports_and_repairs_drift(tmp_path, kind):
    stack = LinkStack(tmp_path)
    await stack.active()
    await stack.active("b-ub", slice_request(instance="b", allocation="b", floor_gbps_per_npu=10.0))
    sound = dict(stack.hardware[NODES[1]].tables)
    inject(stack, kind, slice="a-ub")
    assert stack.agents[NODES[1]].tables("a-ub") != sound["a-ub"]
    assert stack.agents[NODES[1]].tables("b-ub") == sound["b-ub"]
    await stack.report()
    assert (await stack.client.find_slice("a-ub")).state == "Programming"
    assert (await stack.client.find_slice("b-ub")).state == "Active"
    await stack.settle(1)
    assert (await stack.client.find_slice("a-ub")).state == "Active"
    assert stack.hardware[NODES[1]].tables == sound
    events = (await stack.http.get("/v1/events")).json()["items"]
    assert [(each["about"], each["reason"]) for each in events] == [("a-ub", "TablesDrifted")]
    assert NODES[1] in events[0]["message"]


async def test_a_repaired_table_stays_repaired_while_the_fault_is_listed(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    inject(stack, "tables-lost")
    await stack.settle()
    inject(stack, "tables-lost")
    await stack.settle()
    assert len((await stack.http.get("/v1/events")).json()["items"]) == 1
    inject(stack, "tables-lost", "another")
    await stack.settle()
    assert len((await stack.http.get("/v1/events")).json()["items"]) == 2


async def test_an_agent_with_a_wrong_spec_is_detected_by_its_digest(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    program, tables = stack.agents[NODES[1]]._programs["a-ub"], stack.hardware[NODES[1]].tables
    sound = tables["a-ub"]
    tables["a-ub"] = program.desired = sound | {"peers": []}
    program.written = digest(program.desired)
    assert stack.agents[NODES[1]].audit() == [], "it believes itself"
    await stack.report()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.programmed) == ("Programming", 3)
    await stack.settle(1)
    assert (await stack.client.find_slice("a-ub")).state == "Active"
    assert digest(tables["a-ub"]) == digest(sound)
    assert [each["reason"] for each in (await stack.http.get("/v1/events")).json()["items"]] == ["TablesDrifted"]


async def test_unknown_tables_are_removed(agent):  # noqa: F811
    agent.hardware.tables["stray"] = {"peers": []}
    assert agent.audit() == ["stray"]
    assert agent.hardware.tables == {}


async def test_repair_never_applies_an_older_generation(agent):  # noqa: F811
    agent.ensure(make_program(3, isolation_key=7))
    await agent.drain_queue()
    agent.hardware.tables["s"] = agent.hardware.tables["s"] | {"isolation_key": 5, "generation": 2}
    agent.audit()
    assert reported_programs(agent) == {"s": (3, "Programming")}
    await agent.drain_queue()
    assert (agent.tables("s")["isolation_key"], agent.tables("s")["generation"]) == (7, 3)


async def test_a_disconnected_agent_keeps_forwarding_and_repairs_by_itself(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    sound = dict(stack.hardware[NODES[1]].tables)
    with stack.quiet(NODES[1]):
        stack.clock.at += 3600
        await stack.settle()
        assert stack.hardware[NODES[1]].tables == sound
        inject(stack, "tables-lost")
        assert stack.agents[NODES[1]].audit() == ["a-ub"]
        await stack.agents[NODES[1]].drain_queue()
        assert stack.hardware[NODES[1]].tables == sound
        await stack.client.withdraw("a-ub")
        await stack.settle()
    assert stack.hardware[NODES[1]].tables == sound, "nobody reported it otherwise yet"
    await stack.settle()
    assert stack.hardware[NODES[1]].tables == {}


async def test_drift_reported_once_is_not_reported_again_after_a_restart(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    inject(stack, "tables-lost")
    await stack.settle()
    stack.database.close()
    stack.restart()
    await stack.settle()
    assert len((await stack.http.get("/v1/events")).json()["items"]) == 1
