"""The view is the contract with the workload: camelCase JSON there and back, planes by their wire names."""

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView, merge_views


def make_view(slice="a-ub", plane=Plane.UB, generation=2):
    ports = NodePorts(uplink_gbps=[448.0] * 7, endpoint_gbps=[28.0] * 7)
    planes = {plane: PlaneView(nodes={"sn0-c00-n0": ports}, latency_us=1.9)}
    return FabricView(slice=slice, instance="a", machine="CloudMatrix384", generation=generation, planes=planes)


def test_the_wire_form_round_trips():
    wire = make_view().wire()
    assert wire == {
        "slice": "a-ub",
        "instance": "a",
        "machine": "CloudMatrix384",
        "generation": 2,
        "planes": {
            "ub": {
                "nodes": {"sn0-c00-n0": {"uplinkGbps": [448.0] * 7, "endpointGbps": [28.0] * 7}},
                "latencyUs": 1.9,
            }
        },
    }
    assert FabricView.model_validate(wire) == make_view()


def test_a_merged_view_has_every_plane_and_changes_with_each():
    both = merge_views("a", [make_view(), make_view("a-vpc", Plane.VPC, 3)])
    assert set(both.planes) == {Plane.UB, Plane.VPC}
    assert (both.slice, both.generation) == ("a-ub,a-vpc", 5)
