"""Conversion of pod templates for Volcano or MindCluster to this scheduler's terms: gang, gang size and topology."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.chips import HARDWARE_SELECTORS, ChipConverter, chips_per_node
from matrixcontainer.conversion.report import Report
from matrixcontainer.scheduler.gangs import SCHEDULER_NAME
from matrixcontainer.scheduler.pod_groups import GROUP_ANNOTATIONS

SIZE_LABEL = "huawei.com/schedule_minAvailable"
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
HYPERNODE = "volcano.sh/hypernode"
JOB_ANNOTATIONS = ("sp-block", "reserve-nodes")
"""Annotations that MindCluster reads from a job, and the scheduler here from its pods."""
TOPOLOGY_MODES = {"hard": "required", "soft": "preferred"}


def rewrite_template(
    template: dict[str, Any], path: str, job_annotations: dict[str, str], override: int | None, report: Report
) -> bool:
    """Rewrite a pod template in place; return whether it requests NPUs and therefore got our scheduler.

    `job_annotations` are the annotations and labels of the enclosing job."""
    metadata, spec = _object(template, "metadata", path), _object(template, "spec", path)
    path = f"{path}." if path else ""
    annotations = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    converter = ChipConverter(chips_per_node(template, {**job_annotations, **annotations}, override), report)
    if not converter.rewrite(spec, f"{path}spec"):
        return False
    before = spec.get("schedulerName")
    spec["schedulerName"] = SCHEDULER_NAME
    if before != SCHEDULER_NAME:
        report.translated(f"{path}spec.schedulerName", f"{before or 'default-scheduler'}: {SCHEDULER_NAME}")
    _drop_selectors(spec, path, report)
    for name in JOB_ANNOTATIONS:
        if name in annotations:
            report.kept(f"{path}metadata.annotations[{name}]", "read by the scheduler here")
        elif name in job_annotations:
            metadata.setdefault("annotations", {})[name] = str(job_annotations[name])
            report.translated(f"metadata.annotations[{name}]", "on the pods")
    return True


def _object(template: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    """An object field of the template, created if missing. Raises InvalidField if it is not an object."""
    value = template.setdefault(key, {})
    if not isinstance(value, dict):
        raise InvalidField("must be an object", field=f"{path}.{key}".lstrip("."))
    return value


def join_gang(template: dict[str, Any], name: str, size: int) -> None:
    """Make the template's pods members of the gang `name` of `size` pods."""
    metadata = template["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), GROUP_ANNOTATIONS[0]: name}
    metadata["labels"] = {**(metadata.get("labels") or {}), SIZE_LABEL: str(size)}


def set_topology(template: dict[str, Any], topology: dict[str, Any], report: Report) -> None:
    """Translate Volcano's `networkTopology` to a pod annotation. Raises InvalidField for an unknown mode."""
    mode = topology.get("mode", "hard")
    if mode not in TOPOLOGY_MODES:
        raise InvalidField(f"unknown mode {mode!r}; use hard or soft", field="spec.networkTopology.mode")
    key = TOPOLOGY.format(TOPOLOGY_MODES[mode])
    template["metadata"].setdefault("annotations", {})[key] = HYPERNODE
    report.translated("spec.networkTopology", f"{mode}: pod annotation {key}: {HYPERNODE} (one supernode)")


def _drop_selectors(spec: dict[str, Any], path: str, report: Report) -> None:
    selector = spec.get("nodeSelector") or {}
    for name in HARDWARE_SELECTORS:
        if selector.pop(name, None) is not None:
            report.left_out(f"{path}spec.nodeSelector[{name}]", "every node here is a CloudMatrix384 node")
    if "nodeSelector" in spec and not selector:
        del spec["nodeSelector"]
