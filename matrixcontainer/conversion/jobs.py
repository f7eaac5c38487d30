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
from matrixcontainer.conversion.accounts import Accounts
from matrixcontainer.conversion.gang_words import join_gang, keep_near, rewrite_template
from matrixcontainer.conversion.shapes import ASCEND, REPLICAS, VOLCANO, check

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


def convert_volcano(body: dict[str, Any], given: int | None, accounts: Accounts) -> list[dict[str, Any]]:
    """Convert a Volcano Job. Raises InvalidField if it has no tasks or an invalid one."""
    check(body, VOLCANO)
    spec = body.get("spec") or {}
    tasks = [
        _Task(str(each.get("name") or f"task{at}"), f"spec.tasks[{at}]", _count(each, f"spec.tasks[{at}]"), each)
        for at, each in enumerate(_listed(spec.get("tasks"), "spec.tasks"))
    ]
    for at, each in enumerate(spec["tasks"]):
        for word in sorted(set(each) - {"name", "replicas", "template", "minAvailable"}):
            accounts.left_out(f"spec.tasks[{at}].{word}", NO_COUNTERPART.get(word, "not supported"))
    _report_left_out(spec, accounts, "tasks", "minAvailable", "schedulerName", "maxRetry", "networkTopology",
                  "priorityClassName", "ttlSecondsAfterFinished")  # fmt: skip
    return _jobs(body, tasks, spec.get("minAvailable"), "spec.minAvailable", given, accounts)


def convert_ascend(body: dict[str, Any], given: int | None, accounts: Accounts) -> list[dict[str, Any]]:
    """Convert an AscendJob. Raises InvalidField if it has no replica types or an invalid one."""
    check(body, ASCEND)
    spec = body.get("spec") or {}
    replicas = spec.get("replicaSpecs")
    if not isinstance(replicas, dict) or not replicas:
        raise InvalidField("name at least one replica type, such as Master or Worker", field="spec.replicaSpecs")
    tasks = []
    for kind, each in replicas.items():
        path = f"spec.replicaSpecs.{kind}"
        if not isinstance(each, dict):
            raise InvalidField("must be an object with replicas and template", field=path)
        check(each, REPLICAS, path)
        tasks.append(_Task(str(kind).lower(), path, _count(each, path), each))
        if each.get("restartPolicy"):
            (each.get("template") or {}).setdefault("spec", {}).setdefault("restartPolicy", each["restartPolicy"])
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    if policy.get("queue"):
        accounts.left_out("spec.runPolicy.schedulingPolicy.queue", NO_COUNTERPART["queue"])
    _report_left_out(spec, accounts, "replicaSpecs", "runPolicy", "schedulerName")
    least, field = policy.get("minAvailable"), "spec.runPolicy.schedulingPolicy.minAvailable"
    return _jobs(body, tasks, least, field, given, accounts)


def _jobs(
    body: dict[str, Any], tasks: list[_Task], least: Any, field: str, given: int | None, accounts: Accounts
) -> list[dict[str, Any]]:
    metadata, spec = body["metadata"], body.get("spec") or {}
    total = sum(each.replicas for each in tasks)
    if least is None:
        least = total
    if not isinstance(least, int) or isinstance(least, bool) or not 1 <= least <= total:
        raise InvalidField(f"must be between 1 and {total}, the number of pods of all tasks", field=field)
    accounts.translated(field, f"the gang {metadata['name']} of {least} pods")
    return [_job(metadata, spec, each, len(tasks) > 1, least, given, accounts) for each in tasks]


def _job(
    metadata: dict[str, Any], spec: dict[str, Any], task: _Task, several: bool, size: int, given: int | None,
    accounts: Accounts,
) -> dict[str, Any]:  # fmt: skip
    template = deepcopy(task.template.get("template") or {})
    if spec.get("schedulerName"):
        template.setdefault("spec", {}).setdefault("schedulerName", spec["schedulerName"])
    notes = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    if rewrite_template(template, f"{task.path}.template", notes, given, accounts):
        join_gang(template, metadata["name"], size)
        if topology := spec.get("networkTopology"):
            keep_near(template, topology, accounts)
    pod = template["spec"]
    if pod.get("restartPolicy", "Always") not in JOB_RESTARTS:
        before, pod["restartPolicy"] = pod.get("restartPolicy", "Always"), "OnFailure"
        accounts.translated(f"{task.path}.template.spec.restartPolicy", f"{before}: OnFailure, as Jobs require")
    if spec.get("priorityClassName"):
        pod.setdefault("priorityClassName", spec["priorityClassName"])
        accounts.translated("spec.priorityClassName", "on the pods")
    name = f"{metadata['name']}-{task.name}" if several else metadata["name"]
    accounts.translated(task.path, f"the Job {name} of {task.replicas} indexed pods")
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": task.replicas,
        "parallelism": task.replicas,
        "backoffLimit": spec.get("maxRetry", MAX_RETRY),
        "template": template,
    }
    if "maxRetry" in spec:
        accounts.translated("spec.maxRetry", f"backoffLimit {spec['maxRetry']}, which counts pods")
    if "ttlSecondsAfterFinished" in spec:
        job["ttlSecondsAfterFinished"] = spec["ttlSecondsAfterFinished"]
        accounts.kept("spec.ttlSecondsAfterFinished", "a Job has the same field")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **kept}, "spec": job}


def _listed(value: Any, field: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise InvalidField("must be a list of at least one task", field=field)
    yield from value


def _count(task: dict[str, Any], path: str) -> int:
    count = task.get("replicas", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidField(f"must be a number of pods, at least 1: {str(count)[:40]!r}", field=f"{path}.replicas")
    return count


def _report_left_out(spec: dict[str, Any], accounts: Accounts, *known: str) -> None:
    for word in sorted(set(spec) - set(known)):
        accounts.left_out(f"spec.{word}", NO_COUNTERPART.get(word, "not supported"))
