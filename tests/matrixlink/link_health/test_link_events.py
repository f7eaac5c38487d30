"""Events on links and switches that go down and come back: one for each element, and none that repeats."""

from __future__ import annotations

from matrixresource.agent.hardware import InjectedFault
from tests.matrixlink.fleet import NODES, LinkStack


async def events(stack):
    found = (await stack.http.get("/v1/events", params={"orderBy": "at"})).json()["items"]
    return [(each["about"], each["type"], each["reason"]) for each in found]


async def settle_and_watch(stack):
    await stack.settle()
    stack.clock.at += 11
    await stack.settle()


def break_switch(stack, switch):
    fault = [InjectedFault(name="dead", kind="switch-down", target=switch)] if switch else []
    for node in stack.hardware.values():
        node.apply_faults(fault)


async def test_each_change_of_a_link_is_announced_once(tmp_path):
    stack, announced = LinkStack(tmp_path), []
    for share, reason, type in (
        (0.0, "LinkDown", "Warning"),
        (0.5, "LinkDegraded", "Warning"),
        (1.0, "LinkUp", "Normal"),
    ):
        stack.hardware[NODES[0]].ports = {} if share == 1.0 else {"ub-p3-k11": share}
        await settle_and_watch(stack)
        announced.append((f"{NODES[0]}.ub-p3-k11", type, reason))
        assert await events(stack) == announced
    await settle_and_watch(stack)
    stack.restart()
    await settle_and_watch(stack)
    assert await events(stack) == announced


async def test_a_link_that_recovers_within_a_heartbeat_is_not_announced(tmp_path):
    stack = LinkStack(tmp_path)
    stack.hardware[NODES[0]].ports = {"ub-p3-k11": 0.0}
    await stack.settle()
    stack.hardware[NODES[0]].ports = {}
    await settle_and_watch(stack)
    assert await events(stack) == []


async def test_a_lost_switch_is_one_event(tmp_path):
    stack, switch = LinkStack(tmp_path), "sn0-l2p3-k11"
    stack.clock.at += 61  # who has not been heard by now does not report at all
    await stack.settle()
    break_switch(stack, switch)
    with stack.quiet(*NODES[2:]):  # their reports come a little later
        await stack.settle()
    stack.clock.at += 9
    await stack.settle()
    stack.clock.at += 2
    await stack.settle()
    assert await events(stack) == [(switch, "Warning", "SwitchDown")]
    message = (await stack.http.get("/v1/events")).json()["items"][0]["message"]
    assert message == f"4 links to {switch} went down together: all 4 are down"
    break_switch(stack, None)
    await settle_and_watch(stack)
    assert await events(stack) == [(switch, "Warning", "SwitchDown"), (switch, "Normal", "SwitchUp")]
    message = (await stack.http.get("/v1/events")).json()["items"][1]["message"]
    assert message == f"4 links to {switch} went up together: all 4 are up"


async def test_a_lost_l1_chip_is_announced_without_the_switches_behind_it(tmp_path):
    stack, switch = LinkStack(tmp_path), f"{NODES[0]}-l1p3"
    break_switch(stack, switch)
    await settle_and_watch(stack)
    assert [each[0] for each in await events(stack)] == [switch]
