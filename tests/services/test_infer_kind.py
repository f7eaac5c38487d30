"""A CloudMatrixInfer has what a deployment has, under the same names and within the same bounds."""

from __future__ import annotations

import pytest

from infer_workload.contract import DeploymentRequest
from matrixcontainer.operator.crd_specs import InferSpec, infer_spec
from matrixcontainer.operator.structural_schema import structural_schema

IN_REST_ALONE = {"labels", "batchPerNpu", "mtp", "microbatching"}
"""Labels are the resource's own; the others are for experiments."""
SHORTER = {"instance"}
"""A resource's name is shorter than a key."""
COMPARED = ("type", "minimum", "maximum", "exclusiveMinimum", "enum", "default", "maxItems", "nullable")


def test_it_has_every_field_of_a_deployment():
    assert set(structural_schema(DeploymentRequest)["properties"]) - IN_REST_ALONE == set(infer_spec()["properties"])


@pytest.mark.parametrize("name", sorted(infer_spec()["properties"]))
def test_a_field_takes_what_the_deployments_takes(name):
    ours, theirs = infer_spec()["properties"][name], structural_schema(DeploymentRequest)["properties"][name]
    for what in COMPARED:
        assert ours.get(what) == theirs.get(what) or name in SHORTER, what
    for field, schema in ours.get("properties", {}).items():
        for what in COMPARED:
            assert schema.get(what) == theirs["properties"][field].get(what), (field, what)


def test_what_a_resource_says_is_what_a_deployment_is_asked():
    spec = InferSpec.model_validate(
        {"instance": "a", "objective": {"ttftS": 2, "tpotS": 0.05}, "queueMax": 5, "cacheGbPerNode": 64,
         "cacheSsdGbPerNode": 100, "cacheProjectShare": 0.5, "modelCacheModels": ["qwen3-235b"]}
    )  # fmt: skip
    asked = DeploymentRequest.model_validate(spec.wire())
    assert (asked.objective.tpot_s, asked.queue_max, asked.cache_project_share) == (0.05, 5, 0.5)
    assert asked.model_cache_models == ["qwen3-235b"]
