"""What the operator decides and tells, and the definitions it prints."""

from __future__ import annotations

import pytest

from matrixcommon.model.resource_model import ApiModel, Condition
from matrixcompute.contract import InstanceView, Network
from matrixcontainer.mirrors.mirrors import npus_without_pods
from matrixcontainer.mirrors.objects import node_object, node_status
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.decision import SOURCE_LABEL, desired_instance, next_action
from matrixcontainer.operator.schemas.structural_schema import structural_schema
from matrixcontainer.operator.status import instance_status
from matrixcontainer.operator.workload import pods_for
from matrixcontainer.scheduler.scheduler import GANG_LABEL
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.nodes import NodeView
from matrixresource.contract.requested_capacity import PlacementPolicy

BODY = {
    "apiVersion": "cloudmatrix.io/v1alpha1",
    "kind": "CloudMatrixInstance",
    "metadata": {"name": "one", "namespace": "ns", "uid": "u", "generation": 3, "labels": {"team": "a"}},
    "spec": {"nodes": 4, "spares": 1},
}
GOING = {**BODY["metadata"], "deletionTimestamp": "t"}
PLANNED = {**BODY, "spec": {**BODY["spec"], "dryRun": True}}


def instance(**changes) -> InstanceView:
    current = {
        "name": "one", "nodes": 4, "spares": 1, "npus": 32, "placement": PlacementPolicy(), "network": Network(),
        "allocation": "one", "labels": {"team": "a", SOURCE_LABEL: "ns"}, "state": "Active",
        "generation": 1, "observed_generation": 1, "ready_nodes": 4,
    }  # fmt: skip
    return InstanceView(**({"project": "ns"} | current | changes))


@pytest.mark.parametrize(
    ("sentence", "body", "observed", "verb"),
    [
        ("not there yet", BODY, None, "EnsureInstance"),
        ("as requested", BODY, instance(), "Nothing"),
        ("scaled", BODY, instance(nodes=3), "EnsureInstance"),
        ("other labels", BODY, instance(labels={}), "EnsureInstance"),
        ("still going away", BODY, instance(state="Deleting"), "Nothing"),
        (
            "to be deleted",
            {**BODY, "metadata": GOING},
            instance(),
            "DeleteInstance",
        ),
        ("deleted", {**BODY, "metadata": GOING}, None, "Nothing"),
        ("to be deleted, a plan at last", {**PLANNED, "metadata": GOING}, instance(), "DeleteInstance"),
        ("to be deleted, never more than a plan", {**PLANNED, "metadata": GOING}, instance(labels={}), "Nothing"),
    ],
)
def test_next_action(sentence, body, observed, verb):
    assert next_action(body, observed).verb == verb, sentence


def test_once_ensured_nothing_is_left_to_do():
    request = desired_instance(BODY)
    after = instance(nodes=request.nodes, labels=request.labels)
    assert next_action(BODY, after).verb == "Nothing"


def test_observed_generation_moves_only_when_the_instance_follows():
    behind = instance_status(BODY, instance(generation=2, observed_generation=1), 0)
    assert behind["observedGeneration"] == 0
    settled = instance_status(BODY, instance(), 0)
    assert settled["observedGeneration"] == 3
    assert (settled["state"], settled["readyNodes"]) == ("Active", 4)


def test_ended_lease_is_not_progressing():
    deleting = Condition(type="Progressing", status="True", reason="Deleting", message="delete-instance generation 2")
    leased = {**BODY, "spec": {**BODY["spec"], "leaseS": 60}}
    programmed = Condition(type="LinksReady", status="True", reason="AllProgrammed", message="3 of 3 planes")
    last = instance(conditions=[deleting, programmed], expires_at="2026-01-01T00:00:00Z", lease_s=60)
    before = instance_status(leased, last, 0) | {"observedGeneration": 3}
    ended = instance_status({**leased, "status": before}, None, 0)
    assert ended["state"] == "Ended"
    assert {each["type"]: each["status"] for each in ended["conditions"]} == {"Progressing": "False", "Ready": "False"}


def test_status_of_a_deleted_instance_is_empty():
    """One deleted over REST is made again: until it is, its resource shows neither links nor members."""
    programmed = Condition(type="LinksReady", status="True", reason="AllProgrammed", message="3 of 3 planes")
    shown = instance_status({**BODY, "status": instance_status(BODY, instance(conditions=[programmed]), 0)}, None, 0)
    assert [(each["type"], each["status"]) for each in shown["conditions"]] == [("Ready", "False")]
    assert (shown["state"], shown["readyNodes"], shown["members"], shown["slices"]) == ("Pending", 0, [], [])


def test_member_and_plane_conditions_have_transition_times():
    def member(node: str, ready: bool) -> dict:
        return {
            "node": node, "cabinet": node[:7], "role": "member", "rank": 0, "state": "Active" if ready else "Deploying",
            "agent": "Connected", "health": "Healthy", "ready": ready,
        }  # fmt: skip

    def plane(programmed: bool) -> dict:
        return {"name": "one-ub", "plane": "ub", "state": "Programmed", "generation": 1, "programmed": programmed,
                "floorsKept": True}  # fmt: skip

    first = instance_status(
        BODY, instance(members=[member("a", True), member("b", False)], slices=[plane(False)]), 100.0
    )
    then = instance_status(
        {**BODY, "status": first}, instance(members=[member("a", True), member("b", True)], slices=[plane(True)]), 200.0
    )
    dated = {
        (part.get("node") or part["plane"], c["type"]): (c["status"], c["lastTransitionTime"][14:19])
        for part in [*then["members"], *then["slices"]]
        for c in part["conditions"]
    }
    assert dated == {
        ("a", "Ready"): ("True", "01:40"), ("a", "Healthy"): ("True", "01:40"), ("b", "Ready"): ("True", "03:20"),
        ("b", "Healthy"): ("True", "01:40"), ("ub", "Programmed"): ("True", "03:20"),
        ("ub", "FloorsKept"): ("True", "01:40"),
    }  # fmt: skip
    assert all(c["observedGeneration"] == 3 for part in then["members"] for c in part["conditions"])


def test_every_definition_is_structural_and_its_columns_point_into_its_schema():
    for crd in custom_resource_definitions():
        version = crd["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        _structural(schema, crd["metadata"]["name"])
        for column in version["additionalPrinterColumns"]:
            first = column["jsonPath"].split(".")[1].split("[")[0]
            assert first in ("metadata", "spec", "status")


def test_every_kind_shows_its_state_in_kubectl_get():
    """A refused resource has nothing but its state to show."""
    for crd in custom_resource_definitions():
        columns = {each["name"]: each["jsonPath"] for each in crd["spec"]["versions"][0]["additionalPrinterColumns"]}
        assert columns.get("State") == ".status.state", crd["spec"]["names"]["kind"]


def _structural(node, path):
    assert "type" in node or node.get("x-kubernetes-int-or-string"), path
    assert not {"$ref", "anyOf", "title", "$defs"} & set(node), path
    for name, child in node.get("properties", {}).items():
        _structural(child, f"{path}.{name}")
    if "items" in node:
        _structural(node["items"], f"{path}[]")


def test_a_wire_class_becomes_a_structural_schema():
    class Inner(ApiModel):
        share: float | None = None

    class Outer(ApiModel):
        inner: Inner = Inner()
        names: dict[str, str] = {}

    schema = structural_schema(Outer)
    assert schema["properties"]["inner"]["properties"]["share"] == {"type": "number"}
    assert schema["properties"]["inner"]["default"] == {}
    assert schema["properties"]["names"]["additionalProperties"] == {"type": "string"}


def test_a_pod_per_node_is_named_after_owner_role_and_node():
    owner = {**BODY, "kind": "CloudMatrixInfer", "spec": {"instance": "one"}}
    pods = pods_for(owner, {"sn0-c00-n0": "prefill", "sn0-c00-n1": "decode"})
    assert sorted(pods) == ["one-decode-sn0-c00-n1", "one-prefill-sn0-c00-n0"]
    pod = pods["one-prefill-sn0-c00-n0"]
    assert pod["spec"]["nodeName"] == "sn0-c00-n0"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u"


def node(**changes) -> NodeView:
    current = {
        "name": "sn0-c00-n0", "supernode": "sn0", "cabinet": "sn0-c00", "npus": 8, "cpus": 4, "schedulable": True,
        "power": "On", "health": "Healthy", "agent": "Connected", "epoch": 1, "desiredRole": "Clean", "state": "Available",
        "assignment_generation": 1, "observed_generation": 1,
    }  # fmt: skip
    return NodeView(**(current | changes))


@pytest.mark.parametrize(("agent", "ready"), [("Connected", "True"), ("Stale", "Unknown"), ("Lost", "Unknown")])
def test_a_mirrored_node_is_ready_as_its_agent_is(agent, ready):
    status = node_status(node(agent=agent), "2026-01-01T00:00:00Z", None)
    assert next(c for c in status["conditions"] if c["type"] == "Ready")["status"] == ready
    taints = [taint["key"] for taint in node_object(node(agent=agent))["spec"]["taints"]]
    assert taints.count("node.kubernetes.io/unreachable") == (0 if ready == "True" else 2)


def test_mirrored_condition_keeps_its_transition_time():
    first = node_status(node(), "2026-01-01T00:00:00Z", None)
    second = node_status(node(state="Active"), "2026-01-02T00:00:00Z", first)
    assert [c["lastTransitionTime"] for c in second["conditions"]] == ["2026-01-01T00:00:00Z"] * 2


def test_npus_allocated_without_pods_are_not_allocatable():
    def current(name: str, dies: list[int], **labels: str) -> AllocationView:
        part = MemberView(
            node="sn0-c00-n0", cabinet="sn0-c00", role="member", state="Active", agent="Connected", health="Healthy",
            ready=True, dies=dies,
        )  # fmt: skip
        return AllocationView(
            name=name, labels=labels, nodes=1, npus=len(dies) / 2, spares=0, placement=PlacementPolicy(), topology_version="v",
            bound=True, members=[part],
        )  # fmt: skip

    pods = current("pods-a", [8, 9], **{GANG_LABEL: "ns.a"})
    assert npus_without_pods([current("one", [0, 1, 2]), current("two", [3]), pods]) == {"sn0-c00-n0": 2}
