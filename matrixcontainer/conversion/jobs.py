"""Conversion of a Volcano Job or a MindCluster AscendJob to indexed Kubernetes Jobs whose pods form one gang.

Each task (Volcano) or replica type (MindCluster) becomes a Job, named after both if there are several. What their
controllers do for running pods (SSH keys, host files, event policies) has no counterpart and is reported as left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.gang_templates import join_gang, rewrite_template, set_topology
from matrixcontainer.conversion.report import Report
from matrixcontainer.conversion.shapes import ASCEND, REPLICAS, VOLCANO, check_types

VOLCANO_JOB = ("batch.volcano.sh/v1alpha1", "Job")
ASCEND_JOB = ("mindxdl.gitee.com/v1", "AscendJob")
MAX_RETRY = 3
"""Volcano's default."""
JOB_RESTARTS = ("Never", "OnFailure")

NO_COUNTERPART = {
    "plugins": "pods get JOB_COMPLETION_INDEX, but no host files or SSH keys",
    "policies": "a Job recreates a lost pod, up to backoffLimit times",
    "queue": "there are no queues; the quotas of the namespace's project apply (`matrixctl quota`)",
    "volumes": "job-level volumes are not created; add volumes to the pod template",
    "minSuccess": "a Job succeeds when all its pods have succeeded",
    "partitionPolicy": "use the annotation sp-block, in dies",
    "runningEstimate": "run times are not estimated",
    "successPolicy": "a Job succeeds when all its pods have succeeded",
}


@dataclass(frozen=True)
class _Task:
    name: str
    path: str
    replicas: int
    template: dict[str, Any]


def convert_volcano(body: dict[str, Any], override: int | None, report: Report) -> list[dict[str, Any]]:
    """Convert a Volcano Job. Raises InvalidField if it has no tasks or an invalid one."""
    check_types(body, VOLCANO)
    spec = body.get("spec") or {}
    tasks = [
        _Task(
            str(each.get("name") or f"task{index}"),
            f"spec.tasks[{index}]",
            _replicas(each, f"spec.tasks[{index}]"),
            each,
        )
        for index, each in enumerate(_task_list(spec.get("tasks"), "spec.tasks"))
    ]
    for index, each in enumerate(spec["tasks"]):
        for key in sorted(set(each) - {"name", "replicas", "template", "minAvailable"}):
            report.left_out(f"spec.tasks[{index}].{key}", NO_COUNTERPART.get(key, "not supported"))
    _report_left_out(spec, report, "tasks", "minAvailable", "schedulerName", "maxRetry", "networkTopology",
                  "priorityClassName", "ttlSecondsAfterFinished")  # fmt: skip
    return _jobs(body, tasks, spec.get("minAvailable"), "spec.minAvailable", override, report)


def convert_ascend(body: dict[str, Any], override: int | None, report: Report) -> list[dict[str, Any]]:
    """Convert an AscendJob. Raises InvalidField if it has no replica types or an invalid one."""
    check_types(body, ASCEND)
    spec = body.get("spec") or {}
    replicas = spec.get("replicaSpecs")
    if not isinstance(replicas, dict) or not replicas:
        raise InvalidField("name at least one replica type, such as Master or Worker", field="spec.replicaSpecs")
    tasks = []
    for kind, each in replicas.items():
        path = f"spec.replicaSpecs.{kind}"
        if not isinstance(each, dict):
            raise InvalidField("must be an object with replicas and template", field=path)
        check_types(each, REPLICAS, path)
        tasks.append(_Task(str(kind).lower(), path, _replicas(each, path), each))
        if each.get("restartPolicy"):
            (each.get("template") or {}).setdefault("spec", {}).setdefault("restartPolicy", each["restartPolicy"])
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    if policy.get("queue"):
        report.left_out("spec.runPolicy.schedulingPolicy.queue", NO_COUNTERPART["queue"])
    _report_left_out(spec, report, "replicaSpecs", "runPolicy", "schedulerName")
    min_available, field = policy.get("minAvailable"), "spec.runPolicy.schedulingPolicy.minAvailable"
    return _jobs(body, tasks, min_available, field, override, report)


def _jobs(
    body: dict[str, Any], tasks: list[_Task], min_available: Any, field: str, override: int | None, report: Report
) -> list[dict[str, Any]]:
    metadata, spec = body["metadata"], body.get("spec") or {}
    total = sum(each.replicas for each in tasks)
    if min_available is None:
        min_available = total
    if not isinstance(min_available, int) or isinstance(min_available, bool) or not 1 <= min_available <= total:
        raise InvalidField(f"must be between 1 and {total}, the number of pods of all tasks", field=field)
    report.translated(field, f"the gang {metadata['name']} of {min_available} pods")
    return [_job(metadata, spec, each, len(tasks) > 1, min_available, override, report) for each in tasks]


def _job(
    metadata: dict[str, Any], spec: dict[str, Any], task: _Task, named_by_task: bool, size: int, override: int | None,
    report: Report,
) -> dict[str, Any]:  # fmt: skip
    template = deepcopy(task.template.get("template") or {})
    if spec.get("schedulerName"):
        template.setdefault("spec", {}).setdefault("schedulerName", spec["schedulerName"])
    annotations = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    if rewrite_template(template, f"{task.path}.template", annotations, override, report):
        join_gang(template, metadata["name"], size)
        if topology := spec.get("networkTopology"):
            set_topology(template, topology, report)
    pod = template["spec"]
    if pod.get("restartPolicy", "Always") not in JOB_RESTARTS:
        before, pod["restartPolicy"] = pod.get("restartPolicy", "Always"), "OnFailure"
        report.translated(f"{task.path}.template.spec.restartPolicy", f"{before}: OnFailure, as Jobs require")
    if spec.get("priorityClassName"):
        pod.setdefault("priorityClassName", spec["priorityClassName"])
        report.translated("spec.priorityClassName", "on the pods")
    name = f"{metadata['name']}-{task.name}" if named_by_task else metadata["name"]
    report.translated(task.path, f"the Job {name} of {task.replicas} indexed pods")
    copied = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": task.replicas,
        "parallelism": task.replicas,
        "backoffLimit": spec.get("maxRetry", MAX_RETRY),
        "template": template,
    }
    if "maxRetry" in spec:
        report.translated("spec.maxRetry", f"backoffLimit {spec['maxRetry']}, which counts pods")
    if "ttlSecondsAfterFinished" in spec:
        job["ttlSecondsAfterFinished"] = spec["ttlSecondsAfterFinished"]
        report.kept("spec.ttlSecondsAfterFinished", "a Job has the same field")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **copied}, "spec": job}


def _task_list(value: Any, field: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise InvalidField("must be a list of at least one task", field=field)
    yield from value


def _replicas(task: dict[str, Any], path: str) -> int:
    count = task.get("replicas", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidField(f"must be a number of pods, at least 1: {str(count)[:40]!r}", field=f"{path}.replicas")
    return count


def _report_left_out(spec: dict[str, Any], report: Report, *known: str) -> None:
    for key in sorted(set(spec) - set(known)):
        report.left_out(f"spec.{key}", NO_COUNTERPART.get(key, "not supported"))
