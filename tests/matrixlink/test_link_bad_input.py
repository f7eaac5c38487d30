"""What MatrixLink refuses, by its field, and that it changes nothing."""

from __future__ import annotations

import pytest

from matrixcommon.api.authorization import REDACTED_NAME, redact
from matrixcommon.model.errors import Conflict, InsufficientBandwidth, InvalidField
from matrixcompute.access import OPERATIONS
from services.chassis.access import create_token
from tests.matrixlink.fleet import NODES, slice_request


async def test_reports_of_unknown_ports_are_refused(stack):
    report = stack.agents[NODES[0]].report().wire()
    for ports, reason in [
        ([{"port": "ub-p9-k00", "gbps": 1}], "InvalidField"),
        ([{"port": "vpc", "gbps": 51}], "InvalidField"),
    ]:
        answer = await stack.http.post("/v1/link-reports", json={"reports": [report | {"ports": ports}]})
        assert answer.json()["answers"][0]["reason"] == reason
    answer = await stack.http.post("/v1/link-reports", json={"reports": [report | {"node": "sn7-c99-n0"}]})
    assert answer.json()["answers"][0]["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"leaseSeconds": "soon"}, "leaseSeconds: "),
        ({"epoch": 2**63}, "epoch: "),
        ({"sequence": 10**400}, "sequence: "),
        ({"colour": "red"}, "colour: "),
        ({"probes": {"round": 10**12, "sent": 1}}, "probes.round: "),
        ({"counters": {"at": 0, "sent": [2**70], "received": []}}, "counters.sent.0: "),
        ({"counters": {"at": 1e300, "sent": [1], "received": []}}, "counters.at: "),
        ({"counters": {"at": -1e300, "sent": [1], "received": []}}, "counters.at: "),
        ({"programs": [{"slice": "a", "generation": 2**31, "status": "Cleared"}]}, "programs.0.generation: "),
        ({"programs": [{"slice": "a", "generation": 1, "status": "Cleared", "drifts": 2**64}]}, "programs.0.drifts: "),
    ],
)
async def test_one_invalid_report_does_not_fail_others(stack, changes, why):
    bad, good = (stack.agents[node].report().wire() for node in NODES[:2])
    answer = await stack.http.post("/v1/link-reports", json={"reports": [bad | changes, good]})
    assert answer.status_code == 200, answer.text
    refused, taken = answer.json()["answers"]
    assert (refused["accepted"], refused["reason"], refused["message"].startswith(why)) == (False, "InvalidField", True)
    assert (taken["node"], taken["accepted"]) == (good["node"], True)
    for by in ("link", "plane", "slice"):
        assert (await stack.http.get(f"/v1/telemetry?by={by}")).status_code == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"plane": "wifi"}, "plane"),
        ({"members": ["sn0-c99-n9"]}, "members[0]"),
        ({"members": ["node-1"]}, "members[0]"),
        ({"members": [NODES[0], NODES[0]]}, "members[1]"),
        ({"members": []}, "members"),
        ({"floorGbpsPerNpu": 393}, "floorGbpsPerNpu"),
        ({"floorGbpsPerNpu": 1e9}, "floorGbpsPerNpu"),
        ({"floorGbpsPerNpu": -1}, "floorGbpsPerNpu"),
        ({"floorGbpsPerNpu": 0}, "floorGbpsPerNpu"),
        ({"ceilingGbpsPerNpu": 1}, "ceilingGbpsPerNpu"),
        ({"qosClass": "BestEffort"}, "floorGbpsPerNpu"),
        ({"qosClass": "Gold"}, "qosClass"),
        ({"weight": -2}, "weight"),
        ({"latencyBoundUs": 1.0}, "latencyBoundUs"),
        ({"protection": "backup"}, "protection"),
        ({"protection": "anyPort"}, "protection"),
        ({"protection": "anyL2Chip", "qosClass": "Burstable", "floorGbpsPerNpu": 0}, "protection"),
        ({"colour": "red"}, "colour"),
        ({"instance": ""}, "instance"),
    ],
)
async def test_bad_specs_are_refused_with_their_field(stack, changes, field):
    answer = await stack.http.put("/v1/slices/a-ub", json=slice_request().wire() | changes)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == field
    assert await stack.client.slices() == []


async def test_other_invalid_input(stack):
    put = stack.http.put
    assert (await put("/v1/slices/No_Name", json=slice_request().wire())).json()["field"] == "name"
    assert (await put("/v1/slices/a", content="{", headers={"content-type": "application/json"})).status_code == 400
    assert (await put("/v1/slices/a", content=b"x" * (2 << 20))).status_code == 413
    assert (await put("/v1/slices/a", json=slice_request().wire(), headers={"If-Match": '"7"'})).status_code == 412
    assert (await stack.http.get("/v1/slices/none")).status_code == 404
    assert (await stack.http.post("/v1/slices/none:program")).status_code == 404
    assert (await stack.http.get("/v1/links/none")).status_code == 404
    assert (await stack.http.get("/v1/links?plane=x")).status_code == 422
    assert (await stack.http.get("/v1/links?node=sn0-c99-n0")).status_code == 404
    assert await stack.client.slices() == []


async def test_a_ub_slice_stays_inside_one_supernode(stack):
    with pytest.raises(InvalidField) as refused:
        await stack.client.admit("a", slice_request(members=[NODES[0], "sn1-c00-n0"]))
    assert refused.value.field == "members[1]"


async def test_plane_and_instance_of_a_slice_are_fixed(stack):
    await stack.client.admit("a", slice_request())
    with pytest.raises(Conflict):
        await stack.client.admit("a", slice_request(instance="b"))
    await stack.active("b", slice_request("vpc", instance="b"))
    await stack.client.withdraw("b")
    with pytest.raises(Conflict):
        await stack.client.admit("b", slice_request("vpc", instance="b", floor_gbps_per_npu=1.0))
    with pytest.raises(Conflict):
        await stack.client.program("b")


async def test_validate_only_changes_nothing(stack):
    view = await stack.client.admit("a", slice_request(), validate_only=True)
    assert view.state == "Admitted"
    assert await stack.client.slices() == []
    assert (await stack.client.admit("b", slice_request(instance="b", floor_gbps_per_npu=392.0))).name == "b"
    with pytest.raises(InsufficientBandwidth):
        await stack.client.admit("a", slice_request(), validate_only=True)


async def test_a_refusal_names_no_slice_of_another_project(stack, tmp_path):
    tokens = {
        project: create_token(tmp_path / "tokens.json", project, project, "editor") for project in ("red", "blue")
    }
    await stack.client.admit("red/mine", slice_request(project="red", floor_gbps_per_npu=100.0))
    await stack.client.admit("blue/secret", slice_request(project="blue", floor_gbps_per_npu=200.0))
    stack.settings = stack.settings.model_copy(update={"tokens": tmp_path / "tokens.json"})
    stack.restart()
    answer = await stack.http.put(
        "/v1/slices/more", json=slice_request(floor_gbps_per_npu=150.0, project="red").wire(),
        headers={"authorization": f"Bearer {tokens['red']}"},
    )  # fmt: skip
    assert answer.status_code == 409, answer.text
    assert answer.json()["blocking"][1]["owners"] == [REDACTED_NAME, "red/mine"]
    error = {"error": {"blocking": [{"owners": ["blue/secret", "red/mine"]}]}}
    shown = redact(error, OPERATIONS.holders, lambda project: project == "red")
    assert shown["error"]["blocking"][0]["owners"] == [REDACTED_NAME, "red/mine"], (
        "nor does the operation that it refused"
    )
