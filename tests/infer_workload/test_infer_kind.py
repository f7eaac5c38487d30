"""A CloudMatrixInfer has what a deployment has, since it is printed from it; a deployment shows what it was asked."""

from __future__ import annotations

from infer_workload.contract.deployments import DeploymentRequest, DeploymentView
from matrixcontainer.operator.schemas.specs import infer_spec
from matrixcontainer.operator.schemas.structural_schema import structural_schema


def test_a_resource_has_every_field_of_a_deployment_as_it_is_there():
    theirs = structural_schema(DeploymentRequest)["properties"]
    ours = infer_spec()["properties"]
    assert set(theirs) - set(ours) == {"labels"}
    assert {name for name in ours if ours[name] != theirs[name]} == {"instance"}
    assert ours["instance"]["maxLength"] < theirs["instance"]["maxLength"]


def test_every_field_says_what_it_is():
    assert [name for name, schema in infer_spec()["properties"].items() if not schema.get("description")] == []


def test_a_deployment_shows_what_it_was_asked_beside_what_it_is():
    assert set(DeploymentRequest.model_fields) <= set(DeploymentView.model_fields)
