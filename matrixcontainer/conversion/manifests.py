"""Convert a manifest of several objects to what runs here, and report every field that changed.

Volcano Jobs and AscendJobs become Jobs. In pods and pod templates, chips are converted to NPUs and the scheduler is
replaced. Objects that only Volcano's scheduler reads are left out; everything else is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.chips import SUPPORTED_CHIPS_PER_NODE
from matrixcontainer.conversion.gang_templates import rewrite_template
from matrixcontainer.conversion.jobs import ASCEND_JOB, VOLCANO_JOB, convert_ascend, convert_volcano
from matrixcontainer.conversion.report import Report, ReportLine
from matrixcontainer.conversion.shapes import POD, check_types

TEMPLATE_PATHS = {
    "Pod": "",
    "Job": "spec.template",
    "Deployment": "spec.template",
    "StatefulSet": "spec.template",
    "ReplicaSet": "spec.template",
    "DaemonSet": "spec.template",
    "CronJob": "spec.jobTemplate.spec.template",
}
"""Path of the pod template in each Kubernetes kind; a Pod is its own template."""
LEFT_OUT_KINDS = {
    ("scheduling.volcano.sh", "Queue"): "there are no queues; the quotas of the namespace's project apply",
    ("topology.volcano.sh", "HyperNode"): "each supernode is one; every Node has the label volcano.sh/hypernode",
    ("nodeinfo.volcano.sh", "Numatopology"): "MatrixResource knows the machine's sockets",
}
REFUSED_GROUPS = {"batch.volcano.sh", "flow.volcano.sh", "training.volcano.sh", "mindxdl.gitee.com"}
"""API groups of Volcano and MindCluster whose other kinds are refused."""


def convert(
    documents: Iterable[Any], chips_per_node: int | None = None
) -> tuple[list[dict[str, Any]], list[ReportLine]]:
    """Return the objects to apply and the report. Raises InvalidField for what cannot be converted.

    `chips_per_node` is how many chips (16 or 8) the manifest counts per node; by default as the manifest says.
    """
    if chips_per_node is not None and chips_per_node not in SUPPORTED_CHIPS_PER_NODE:
        known = " or ".join(map(str, SUPPORTED_CHIPS_PER_NODE))
        raise InvalidField(f"a node cannot have {chips_per_node} chips; use {known}", field="chipsPerNode")
    objects: list[dict[str, Any]] = []
    lines: list[ReportLine] = []
    for document in documents:
        if document is None:
            continue
        body = _validated_copy(document)
        report = Report(f"{body['kind']}/{body['metadata']['name']}")
        try:
            objects += _convert_object(body, chips_per_node, report)
        except InvalidField as error:
            raise InvalidField(f"{report.object}: {error.message}", field=error.field) from error
        lines += report.lines
    return objects, lines


def _convert_object(body: dict[str, Any], override: int | None, report: Report) -> list[dict[str, Any]]:
    version, kind = body["apiVersion"], body["kind"]
    if (version, kind) == VOLCANO_JOB:
        return convert_volcano(body, override, report)
    if (version, kind) == ASCEND_JOB:
        return convert_ascend(body, override, report)
    group = version.partition("/")[0]
    if why := LEFT_OUT_KINDS.get((group, kind)):
        report.left_out("the object", why)
        return []
    if group in REFUSED_GROUPS:
        raise InvalidField(f"cannot convert {kind} of {version}; rewrite it as Jobs", field="kind")
    if kind in TEMPLATE_PATHS and group in ("v1", "apps", "batch"):
        template = _template(body, kind)
        check_types(body, {"metadata": POD["metadata"]})
        check_types(template, POD, TEMPLATE_PATHS[kind])
        annotations = {**(body["metadata"].get("labels") or {}), **(body["metadata"].get("annotations") or {})}
        rewrite_template(template, TEMPLATE_PATHS[kind], annotations, override, report)
    return [body]


def _template(body: dict[str, Any], kind: str) -> dict[str, Any]:
    node: Any = body
    for key in filter(None, TEMPLATE_PATHS[kind].split(".")):
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise InvalidField("is required and must be an object", field=TEMPLATE_PATHS[kind])
    return node


def _validated_copy(document: Any) -> dict[str, Any]:
    """A copy of the document to work on. Raises InvalidField if it is not a Kubernetes object."""
    if not isinstance(document, dict):
        raise InvalidField("a manifest's documents must be objects", field="document")
    body = deepcopy(document)
    for key in ("apiVersion", "kind"):
        if not isinstance(body.get(key), str):
            raise InvalidField("is required and must be a string", field=key)
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise InvalidField("is required and must be a string (generateName is not converted)", field="metadata.name")
    return body
