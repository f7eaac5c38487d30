"""Telemetry: rates from reported counters and from nothing else, added up along the fabric, the top of them, the
stream, and the series for Prometheus."""

import json
import math

import pytest

from services.node_agent.network.traffic_patterns import Load
from services.testing.asgi import StreamingASGITransport
from tests.matrixlink.fleet import NODES, LinkStack, slice_request

PER_NPU = 14.0
NODE = 8 * PER_NPU


@pytest.fixture
async def stack(tmp_path):
    """Two tenants' slices with a ring on one of them, two reports ten seconds apart."""
    stack = LinkStack(tmp_path)
    await stack.active("red/a-ub", slice_request(project="red"))
    await stack.active(
        "blue/b-ub", slice_request(instance="b", allocation="b", project="blue", floor_gbps_per_npu=50.0)
    )
    stack.traffic.put("ring", Load(slice="red/a-ub", pattern="ring", gbps_per_npu=PER_NPU))
    await send_heartbeats(stack)
    return stack


async def send_heartbeats(stack, count=2):
    for _ in range(count):
        stack.clock.at += 10
        await stack.report()


async def query_telemetry(stack, query=""):
    answer = await stack.http.get(f"/v1/telemetry?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def by_name(stack, query):
    return {item["name"]: item for item in (await query_telemetry(stack, query))["items"]}


async def test_nothing_is_shown_before_the_first_counters(tmp_path):
    stack = LinkStack(tmp_path)
    await stack.active()
    await send_heartbeats(stack)
    assert (await query_telemetry(stack, "by=link"))["items"] == []
    assert [(item["name"], item["sentGbps"]) for item in (await query_telemetry(stack, "by=slice"))["items"]] == [
        ("a-ub", 0.0)
    ]


async def test_rates_restart_when_emulated_time_is_reset(stack):
    name = f"{NODES[1]}.ub-p3-k11"
    before = (await by_name(stack, "by=link&pageSize=1000"))[name]["sentGbps"]
    stack.clock.at += 5
    reports = [agent.report() for agent in stack.agents.values()]
    for report in reports:
        report.counters.at -= 3_000
    await stack.client.report(reports)
    assert (await query_telemetry(stack, "by=link"))["items"] == [], "of one moment there is no rate"
    reports = [agent.report() for agent in stack.agents.values()]
    for report in reports:
        report.counters.at -= 2_990
        report.counters.sent = [each + 1_000 for each in report.counters.sent]
    await stack.client.report(reports)
    now = (await by_name(stack, "by=link&pageSize=1000"))[name]["sentGbps"]
    assert now == pytest.approx(0.1)
    assert now != before


async def test_links_show_both_directions_floors_and_latency(stack):
    links = await by_name(stack, "by=link&pageSize=1000")
    assert len(links) == len(NODES) * 129
    link = links[f"{NODES[1]}.ub-p3-k11"]
    assert (link["sentGbps"], link["receivedGbps"]) == pytest.approx((NODE / 112, NODE / 112), abs=1e-3)
    assert link["capacityGbps"] == 28.0
    assert link["utilisation"] == pytest.approx(NODE / 112 / 28, abs=1e-3)
    assert link["headroomGbps"] == pytest.approx(28 - link["floorsGbps"])
    assert link["floorsGbps"] == pytest.approx(150 * 8 / 112, abs=1e-3)
    assert link["latencyUs"] == 1.9
    assert links[f"{NODES[1]}.vpc"]["sentGbps"] == 0


async def test_sums_by_switch_node_and_plane(stack):
    assert (await by_name(stack, "by=plane"))["ub"]["sentGbps"] == pytest.approx(4 * NODE, rel=1e-3)
    switches = await by_name(stack, "by=switch&pageSize=1000")
    assert switches["sn0-l2p3-k11"]["sentGbps"] == pytest.approx(4 * NODE / 112, rel=1e-3)
    assert switches[f"{NODES[0]}-l1p3"]["sentGbps"] == pytest.approx(NODE / 7, rel=1e-3)
    assert (await by_name(stack, "by=node"))[f"{NODES[0]}.ub"]["receivedGbps"] == pytest.approx(NODE, rel=1e-3)


async def test_slices_and_tenants(stack):
    slices = await by_name(stack, "by=slice")
    assert slices["red/a-ub"]["sentGbps"] == pytest.approx(4 * NODE, rel=1e-3)
    assert slices["blue/b-ub"]["sentGbps"] == 0
    assert slices["red/a-ub"]["floorsGbps"] == pytest.approx(100 * 8 * 4)
    tenants = await by_name(stack, "by=project")
    assert {name: round(item["sentGbps"]) for name, item in tenants.items()} == {"red.ub": 448, "blue.ub": 0}
    assert list(await by_name(stack, "by=slice&filter=project=blue")) == ["blue/b-ub"]


async def test_top_lists_the_busiest(stack):
    stack.traffic.put("hot", Load(slice="blue/b-ub", pattern="incast", target=NODES[2], gbps_per_npu=50.0))
    await send_heartbeats(stack)
    top = (await query_telemetry(stack, "by=link&top=5"))["items"]
    assert len(top) == 5
    assert {item["name"].partition(".")[0] for item in top} == {NODES[2]}
    assert sorted((item["utilisation"] for item in top), reverse=True) == [item["utilisation"] for item in top]
    least = (await query_telemetry(stack, "by=node&top=1&orderBy=receivedGbps"))["items"][0]
    assert least["receivedGbps"] == 0


async def test_drops_are_seen_where_a_silent_port_is_and_end_when_routes_go_round_it(stack):
    stack.hardware[NODES[0]].unreported_losses["ub-p3-k11"] = 0.0
    stack.traffic.update()
    await send_heartbeats(stack)
    link = f"{NODES[0]}.ub-p3-k11"
    top = (await query_telemetry(stack, "by=link&top=1&orderBy=droppedGbps desc"))["items"][0]
    assert (top["name"], top["droppedGbps"]) == (link, pytest.approx(2 * NODE / 112, rel=1e-2))
    for _ in range(3):
        await send_heartbeats(stack, 1)
        await stack.settle(1)
    await send_heartbeats(stack)
    links = await by_name(stack, "by=link&pageSize=1000")
    assert links[link]["droppedGbps"] == 0
    assert links[link]["capacityGbps"] == 0
    assert (await by_name(stack, "by=slice"))["red/a-ub"]["sentGbps"] == pytest.approx(4 * NODE, rel=1e-2)


async def test_rates_end_with_the_load_and_with_silence(stack):
    stack.traffic.remove("ring")
    await send_heartbeats(stack)
    assert (await by_name(stack, "by=plane"))["ub"]["sentGbps"] == 0
    stack.clock.at += 100
    assert (await query_telemetry(stack, "by=link"))["items"] == []


async def test_a_restarted_service_has_rates_with_the_second_report(stack):
    stack.database.close()
    stack.restart()
    await send_heartbeats(stack, 1)
    assert (await query_telemetry(stack, "by=link"))["items"] == []
    await send_heartbeats(stack, 1)
    assert (await by_name(stack, "by=plane"))["ub"]["sentGbps"] == pytest.approx(4 * NODE, rel=1e-3)


@pytest.mark.parametrize("query", ["by=colour", "top=0", "top=many", "filter=nonsense"])
async def test_invalid_queries_name_the_field(stack, query):
    answer = await stack.http.get(f"/v1/telemetry?{query}")
    assert answer.status_code in (400, 422)
    assert query.partition("=")[0] in answer.text


async def test_the_stream_sends_updates_after_reports(stack):
    from services.chassis.http import http_client

    http = http_client("http://link", transport=StreamingASGITransport(stack.app))
    seen = []
    async with http.stream("GET", "/v1/telemetry?by=plane&watch=true&filter=name=ub") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: ") and line != "data: {}":
                seen.append(json.loads(line[6:])["items"][0]["sentGbps"])
                if len(seen) == 1:
                    stack.traffic.remove("ring")
                    await send_heartbeats(stack)
                elif seen[-1] == 0:
                    break
    assert seen[0] == pytest.approx(4 * NODE, rel=1e-3)


async def test_prometheus_has_planes_switches_tenants_and_slices_but_no_ports(stack):
    stack.hardware[NODES[0]].ports["ub-p0-k00"] = 0.0
    await stack.report()
    text = (await stack.http.get("/metrics")).text
    current = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("matrixlink_"))
    assert float(current['matrixlink_plane_sent_bytes_per_second{plane="ub"}']) == pytest.approx(
        4 * NODE * 1e9, rel=1e-3
    )
    assert float(current['matrixlink_project_sent_bytes_per_second{plane="ub",project="red"}']) == pytest.approx(
        4 * NODE * 1e9, rel=1e-3
    )
    assert float(current['matrixlink_links_below{plane="ub",reason="PortDown"}']) == 1
    assert float(current["matrixlink_probes_sent_total"]) >= 129 * len(NODES)
    assert 'switch="sn0-l2p3-k11"' in text
    assert "ub-p3-k11" not in text


async def test_a_report_with_invalid_counters_is_refused_alone_and_entirely(stack):
    wrong = stack.agents[NODES[0]].report().wire()
    sensible = stack.agents[NODES[1]].report().wire()
    wrong["counters"]["sent"][3] = -1
    answer = await stack.http.post("/v1/link-reports", json={"reports": [wrong, sensible]})
    refused, accepted = answer.json()["answers"]
    assert not refused["accepted"]
    assert refused["reason"] == "InvalidField"
    assert "counters.sent.3" in refused["message"]
    assert accepted["accepted"]


async def test_a_plane_is_a_matrix_of_nodes_by_ports(stack):
    async def matrix(query=""):
        return await stack.http.get(f"/v1/planes/ub/matrix?{query}")

    found = (await matrix()).json()
    assert (len(found["nodes"]), len(found["ports"])) == (48, 112)
    column = found["ports"].index("ub-p3-k11")
    assert (found["subPlanes"][column], found["switches"][column]) == (3, "sn0-l2p3-k11")
    assert set(found["switchCabinets"]) == {f"sn0-c{cabinet}" for cabinet in range(12, 16)}
    moving = found["nodes"].index(NODES[1])
    assert set(found["utilisation"][moving]) == {math.ceil(NODE / 112 / 28 * 100)}
    assert set("".join(found["states"])) == {"u"}

    stack.slice_controller().fabric.set_ports(NODES[1], {"ub-p3-k11": 0.0, "ub-p3-k12": 14.0})
    stack.slice_controller().fabric.set_drained({NODES[1]: ["ub-p3-k13"]})
    states = (await matrix("supernode=sn0")).json()["states"]
    assert states[moving][column : column + 3] == "xdo"
    assert sum(each.count("u") for each in states) == 48 * 112 - 3

    assert (await matrix("supernode=sn9")).json()["field"] == "supernode"
    assert (await stack.http.get("/v1/planes/wifi/matrix")).status_code == 404
