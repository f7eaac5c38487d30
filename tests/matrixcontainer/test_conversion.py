"""Manifests for Volcano, MindCluster and CCE, converted: what runs here, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.manifests import convert
from matrixcontainer.scheduler.gangs import group_into_gangs

VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: pretrain, namespace: blue, annotations: {sp-block: "32", reserve-nodes: "1"}}
spec:
  minAvailable: 4
  schedulerName: volcano
  queue: default
  maxRetry: 5
  priorityClassName: high
  networkTopology: {mode: hard, highestTierAllowed: 1}
  plugins: {svc: []}
  tasks:
    - name: worker
      replicas: 4
      policies: [{event: TaskCompleted, action: CompleteJob}]
      template:
        spec:
          nodeSelector: {accelerator-type: module-a3-16-super-pod, disk: fast}
          containers:
            - {name: train, resources: {requests: {huawei.com/Ascend910: 16}, limits: {huawei.com/Ascend910: 16}}}
"""
ASCEND = """
apiVersion: mindxdl.gitee.com/v1
kind: AscendJob
metadata: {name: tuned, namespace: blue}
spec:
  schedulerName: volcano
  runPolicy: {schedulingPolicy: {minAvailable: 3, queue: default}}
  successPolicy: AllWorkers
  replicaSpecs:
    Master: &one
      replicas: 1
      restartPolicy: Never
      template: {spec: {containers: [{name: ascend, resources: {limits: {huawei.com/Ascend910: 8}}}]}}
    Worker: {<<: *one, replicas: 2}
"""


def convert_text(text: str, chips: int | None = None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    objects, accounts = convert(yaml.safe_load_all(text), chips)
    return objects, {each.field: f"{each.outcome}: {each.message}" for each in accounts}


def pods_of(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the Job controller makes them."""
    made = []
    for job in jobs:
        for index in range(job["spec"]["completions"]):
            pod = deepcopy(job["spec"]["template"])
            pod["metadata"] |= {"name": f"{job['metadata']['name']}-{index}", "namespace": job["metadata"]["namespace"]}
            pod["metadata"]["uid"] = pod["metadata"]["name"]
            made.append(pod)
    return made


def test_volcano_job_becomes_one_gang() -> None:
    (job,), accounts = convert_text(VOLCANO)
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("batch/v1", "Job", "pretrain")
    assert (job["spec"]["completions"], job["spec"]["backoffLimit"]) == (4, 5)
    (gang,) = group_into_gangs(pods_of([job]))
    gang.validate()
    assert (gang.name, gang.size, gang.npus_per_pod, gang.spares) == ("pretrain", 4, 8, 1)
    placement = gang.placement()
    assert (placement.level, placement.required, placement.blocks[0].nodes) == ("supernode", True, 2)
    pod = job["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"disk": "fast"}, "high")
    assert accounts["spec.queue"].startswith("left out: there are no queues")
    assert accounts["spec.tasks[0].policies"].startswith("left out: ")
    assert accounts["spec.tasks[0].template.spec.schedulerName"] == "translated: volcano: matrix-scheduler"
    assert not any(field.endswith("[disk]") for field in accounts)


def test_each_replica_type_becomes_a_job_of_one_gang() -> None:
    jobs, accounts = convert_text(ASCEND)
    assert [(each["metadata"]["name"], each["spec"]["completions"]) for each in jobs] == [
        ("tuned-master", 1), ("tuned-worker", 2),
    ]  # fmt: skip
    (gang,) = group_into_gangs(pods_of(jobs))
    gang.validate()
    assert (gang.size, gang.npus_per_pod, len(gang.pods)) == (3, 4, 3), "8 of 16 dies are 4 of 8 NPUs"
    assert {job["spec"]["template"]["spec"]["restartPolicy"] for job in jobs} == {"Never"}
    assert accounts["spec.successPolicy"].startswith("left out")


@pytest.mark.parametrize(
    ("sentence", "asked", "template", "given", "npus"),
    [
        ("dies of a supernode's node", "16", {}, None, 8),
        ("CCE's name of the resource", "16", {"resource": "huawei.com/ascend-1980"}, None, 8),
        ("a node of eight chips", "8", {"selector": {"accelerator-type": "module-910b-8"}}, None, 8),
        ("the policy of an A2", "4", {"notes": {"huawei.com/schedule_policy": "chip8-node8"}}, None, 4),
        ("the policy of an A3", "4", {"notes": {"huawei.com/schedule_policy": "chip2-node16-sp"}}, None, 2),
        ("who converts it knows better", "8", {"selector": {"accelerator-type": "module-a3-16"}}, 8, 8),
    ],
)
def test_chips_are_counted_as_the_manifest_counts_them(sentence, asked, template, given, npus) -> None:
    resource = template.get("resource", "huawei.com/Ascend910")
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": template.get("notes", {})},
        "spec": {
            "nodeSelector": template.get("selector", {}),
            "containers": [{"name": "c", "resources": {"limits": {resource: asked, "cpu": "2"}}}],
        },
    }  # fmt: skip
    (found,), _ = convert_text(yaml.safe_dump(pod), given)
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"huawei.com/Ascend910": npus, "cpu": "2"}, sentence
    assert found["spec"]["schedulerName"] == "matrix-scheduler"


def test_manifests_without_npus_are_unchanged() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}}
    web = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {}, "spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]}}},
    }  # fmt: skip
    found, accounts = convert_text(yaml.safe_dump_all([service, web]))
    assert (found, accounts) == ([service, web], {})


def test_volcano_only_objects_are_left_out() -> None:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    found, accounts = convert_text(yaml.safe_dump(queue))
    assert found == []
    assert accounts["the object"].startswith("left out: there are no queues")


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (("replicas: 4", "replicas: none"), "spec.tasks[0].replicas", "must be a number of pods"),
        (("minAvailable: 4", "minAvailable: 9"), "spec.minAvailable", "between 1 and 4"),
        (("mode: hard", "mode: rack"), "spec.networkTopology.mode", "use hard or soft"),
        (("huawei.com/Ascend910: 16", "huawei.com/Ascend910: 3"), "resources[huawei.com/Ascend910]", "1.5 NPUs"),
        (("huawei.com/Ascend910: 16", "huawei.com/Ascend910: 32"), "resources[huawei.com/Ascend910]", "one node each"),
        (("kind: Job", "kind: JobFlow"), "kind", "cannot convert JobFlow of batch.volcano.sh/v1alpha1"),
        (("  tasks:", "  tasks: []\n  other:"), "spec.tasks", "at least one task"),
        (("name: pretrain", "generateName: p-"), "metadata.name", "is required"),
    ],
)
def test_unconvertible_input_is_refused_with_its_field(change, field, says) -> None:
    with pytest.raises(InvalidField, match=says) as refused:
        convert_text(VOLCANO.replace(*change))
    assert str(refused.value.field).endswith(field)


def test_unsupported_chip_count_is_refused() -> None:
    with pytest.raises(InvalidField, match="use 8 or 16"):
        convert([], 12)


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: served, labels: {huawei.com/schedule_policy: chip2-node16-sp}}
spec:
  template:
    metadata: {labels: {app: x}, annotations: {sp-block: "32"}}
    spec:
      nodeSelector: {accelerator-type: module-a3-16-super-pod}
      initContainers: [{name: init, resources: {limits: {huawei.com/Ascend910: 16}}}]
      containers: [{name: main, resources: {limits: {huawei.com/Ascend910: 16}}}]
"""
OTHERWISE = (None, "text", 3, -1, 0.5, True, [], [3], {}, {"a": 3}, [[]], [None])


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places_of(each, (*path, key))


@pytest.mark.parametrize("manifest", [VOLCANO, ASCEND, DEPLOYMENT], ids=["volcano", "ascend", "deployment"])
def test_mistyped_field_is_refused_with_its_path_or_ignored(manifest: str) -> None:
    whole = yaml.safe_load(manifest)
    for path in places_of(whole):
        for other in OTHERWISE:
            changed: Any = [deepcopy(whole)]
            holder, last = changed, 0
            for step in path:
                holder, last = holder[last], step
            holder[last] = deepcopy(other)
            try:
                objects, _ = convert(changed)
            except InvalidField as refused:
                if not refused.field:
                    raise
            else:
                yaml.safe_dump_all(objects)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (("spec:\n  minAvailable: 4", "spec: 3\nstatus:\n  minAvailable: 4"), "spec", "an object"),
        (("tasks:\n", "tasks: 3\n  other:\n"), "spec.tasks", "a list"),
        (('{sp-block: "32"', "{sp-block: 32"), "metadata.annotations[sp-block]", "in quotes"),
        (("maxRetry: 5", "maxRetry: five"), "spec.maxRetry", "an integer"),
        (("containers:", "containers: 3\n          other:"), "spec.tasks[0].template.spec.containers", "a list"),
    ],
)
def test_a_wrong_type_is_refused_with_its_field(change: tuple[str, str], field: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as refused:
        convert_text(VOLCANO.replace(*change))
    assert refused.value.field == field


def test_null_counts_as_absent() -> None:
    (job,), _ = convert_text(VOLCANO.replace("template:\n", "template:\n        metadata: null\n"))
    assert job["spec"]["template"]["metadata"]["annotations"]["sp-block"] == "32"
