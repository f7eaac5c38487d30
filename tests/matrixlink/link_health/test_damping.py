"""Damping: penalties grow, halve and end; a flapping port is held down and shown so, through a restart, until it has
been quiet or somebody lets it go; and never the last way out."""

import pytest
from pydantic import ValidationError

from matrixlink.link_health.flap_damping import DOWN_PENALTY, Damping
from services.link.main import LinkSettings
from tests.matrixlink.fleet import NODES, LinkStack

PORT, LINK = "ub-p3-k11", f"{NODES[0]}.ub-p3-k11"
DAMPING = Damping(half_life_s=120, suppress=2500, reuse=750, hold_max_s=900)


def test_a_penalty_halves_every_half_life():
    assert DAMPING.decayed(1000, 120) == 500
    assert DAMPING.decayed(1000, 360) == 125
    assert DAMPING.decayed(1000, -5) == 1000


def test_a_penalty_grows_up_to_its_ceiling():
    penalty = 0.0
    for _ in range(3):
        penalty = DAMPING.grown(penalty, 0, DOWN_PENALTY)
    assert penalty == 3000
    for _ in range(500):
        penalty = DAMPING.grown(penalty, 1, DOWN_PENALTY)
    assert penalty == DAMPING.ceiling
    assert DAMPING.suppressed_for_s(penalty) == pytest.approx(DAMPING.hold_max_s)


@pytest.mark.parametrize(("penalty", "hold_s"), [(700, 0), (750, 0), (1500, 120), (3000, 240)])
def test_suppression_time(penalty, hold_s):
    assert DAMPING.suppressed_for_s(penalty) == pytest.approx(hold_s)


def test_thresholds_out_of_order_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="damping_reuse"):
        LinkSettings(state=tmp_path, damping_reuse=3000)


async def flap(stack, times=1, port=PORT, node=NODES[0]):
    """Down and up again, each for a second."""
    for _ in range(times):
        for share in (0.0, None):
            ports = stack.hardware[node].ports
            ports.pop(port, None)
            if share is not None:
                ports[port] = share
            stack.clock.at += 1
            await stack.report()
            await stack.health.step()


async def link(stack, name=LINK):
    return (await stack.http.get(f"/v1/links/{name}")).json()


def generation(stack):
    return stack.agents[NODES[0]].report().programs[0].generation


async def test_two_losses_are_routed_around_and_three_are_damped(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    await flap(stack, 2)
    await stack.settle()
    assert ((await link(stack))["state"], (await link(stack)).get("dampedUntil")) == ("Up", None)
    await flap(stack)
    current = await link(stack)
    assert (current["state"], current["reason"], current["gbps"]) == ("Down", "Damped", 0.0)
    assert [(each["type"], each["status"]) for each in current["conditions"]] == [("Damped", "True")]
    events = [each for each in (await stack.http.get("/v1/events")).json()["items"] if each["about"] == LINK]
    assert [each["reason"] for each in events] == ["Damped"]
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Degraded"
    before = generation(stack)
    await flap(stack, 5)
    await stack.settle()
    assert generation(stack) == before, "no routes move while it is held"


async def damped_link(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    await flap(stack, 3)
    assert (await link(stack))["reason"] == "Damped"
    return stack


async def test_damping_ends_after_a_quiet_period_also_across_a_restart(tmp_path):
    stack = await damped_link(tmp_path)
    stack.database.close()
    stack.restart()
    assert (await link(stack))["reason"] == "Damped"
    assert stack.slice_controller().fabric.rate(NODES[0], PORT) == 0
    stack.clock.at += 230
    await stack.settle()
    assert (await link(stack))["reason"] == "Damped"
    stack.clock.at += 15
    await stack.settle()
    assert ((await link(stack))["state"], (await link(stack))["reason"]) == ("Up", "")
    assert [each["status"] for each in (await link(stack))["conditions"]] == ["False"]
    assert (await stack.client.find_slice("a-ub")).state == "Active"


async def test_a_port_still_down_when_damping_ends_stays_down(tmp_path):
    stack = await damped_link(tmp_path)
    stack.hardware[NODES[0]].ports[PORT] = 0.0
    await stack.report()
    stack.clock.at += 1000
    await stack.settle()
    assert ((await link(stack))["state"], (await link(stack))["reason"]) == ("Down", "PortDown")


async def test_damping_can_be_ended_by_request(tmp_path):
    stack = await damped_link(tmp_path)
    answer = await stack.http.post(f"/v1/links/{LINK}:undamp")
    assert (answer.status_code, answer.json()["state"]) == (200, "Up")
    assert (await stack.http.post(f"/v1/links/{LINK}:undamp")).status_code == 409
    assert (await stack.http.post("/v1/links/sn0-c00-n0.ub-p9-k99:undamp")).status_code == 404
    await flap(stack, 2)
    assert (await link(stack))["reason"] == "", "its past is forgotten"


@pytest.mark.parametrize(("port", "current"), [("vpc", False), ("rdma-npu5-die0", True), ("npu5-die1-p2", True)])
async def test_the_last_alternative_is_never_damped(tmp_path, port, current):
    stack = LinkStack(tmp_path)
    await flap(stack, 4, port)
    assert ((await link(stack, f"{NODES[0]}.{port}"))["reason"] == "Damped") is current


async def test_the_alternative_of_a_lost_port_is_not_damped(tmp_path):
    stack = LinkStack(tmp_path)
    stack.hardware[NODES[0]].ports["rdma-npu5-die1"] = 0.0
    await flap(stack, 4, "rdma-npu5-die0")
    assert (await link(stack, f"{NODES[0]}.rdma-npu5-die0"))["state"] == "Up"


async def test_damping_ends_when_the_port_becomes_the_last_alternative(tmp_path):
    stack = LinkStack(tmp_path)
    damped, other = f"{NODES[0]}.rdma-npu5-die0", "rdma-npu5-die1"
    await flap(stack, 3, "rdma-npu5-die0")
    assert (await link(stack, damped))["reason"] == "Damped"
    stack.hardware[NODES[0]].ports[other] = 0.0
    await stack.report()
    assert ((await link(stack, damped))["state"], (await link(stack, damped))["reason"]) == ("Up", "")
    await flap(stack, 1, "rdma-npu5-die0")
    assert (await link(stack, damped))["state"] == "Up", "nor is it held again while it is"


async def test_damping_ends_when_the_port_comes_up_as_the_other_goes_down(tmp_path):
    stack = LinkStack(tmp_path)
    ports = stack.hardware[NODES[0]].ports
    await flap(stack, 3, "rdma-npu5-die1")
    ports["rdma-npu5-die1"] = 0.0
    await stack.report()
    assert (await link(stack, f"{NODES[0]}.rdma-npu5-die1"))["reason"] == "Damped"
    del ports["rdma-npu5-die1"]
    ports["rdma-npu5-die0"] = 0.0
    await stack.report()
    assert (await link(stack, f"{NODES[0]}.rdma-npu5-die1"))["state"] == "Up"


async def test_the_alternative_of_a_drained_port_is_not_damped(tmp_path):
    stack = LinkStack(tmp_path)
    drained = f"{NODES[0]}.rdma-npu5-die1"
    assert (await stack.http.put("/v1/drains/d", json={"elements": [drained]})).status_code == 200
    await flap(stack, 4, "rdma-npu5-die0")
    assert (await link(stack, f"{NODES[0]}.rdma-npu5-die0"))["state"] == "Up"


async def test_lanes_are_shown(tmp_path):
    stack = LinkStack(tmp_path)
    stack.hardware[NODES[0]].ports |= {PORT: 0.5, "ub-p3-k12": 0.25, "ub-p3-k13": 0.4}
    await stack.report()
    shown = [await link(stack, f"{NODES[0]}.ub-p3-k{k}") for k in (11, 12, 13)]
    assert [(each["state"], each["reason"], each.get("lanes")) for each in shown] == [
        ("Degraded", "LanesLost", "1/2"),
        ("Degraded", "LanesLost", "1/4"),
        ("Degraded", "LanesLost", None),
    ]
