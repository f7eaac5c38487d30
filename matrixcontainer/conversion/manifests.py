"""Convert a manifest of several objects to what runs here, and report every field that changed.

Volcano Jobs and AscendJobs become Jobs. In pods and pod templates, chips are converted to NPUs and the scheduler is
replaced. Objects that only Volcano's scheduler reads are left out; everything else is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.accounts import Account, Accounts
from matrixcontainer.conversion.chips import CHIPS_PER_NODE_KNOWN
from matrixcontainer.conversion.gang_words import rewrite_template
from matrixcontainer.conversion.jobs import ASCEND_JOB, VOLCANO_JOB, convert_ascend, convert_volcano
from matrixcontainer.conversion.shapes import POD, check

TEMPLATES = {
    "Pod": "",
    "Job": "spec.template",
    "Deployment": "spec.template",
    "StatefulSet": "spec.template",
    "ReplicaSet": "spec.template",
    "DaemonSet": "spec.template",
    "CronJob": "spec.jobTemplate.spec.template",
}
"""Path of the pod template in each Kubernetes kind; a Pod is its own template."""
OF_VOLCANO = {
    ("scheduling.volcano.sh", "Queue"): "there are no queues; the quotas of the namespace's project apply",
    ("topology.volcano.sh", "HyperNode"): "each supernode is one; every Node has the label volcano.sh/hypernode",
    ("nodeinfo.volcano.sh", "Numatopology"): "MatrixResource knows the machine's sockets",
}
UNKNOWN = {"batch.volcano.sh", "flow.volcano.sh", "training.volcano.sh", "mindxdl.gitee.com"}
"""API groups of Volcano and MindCluster whose other kinds are refused."""


def convert(documents: Iterable[Any], chips_per_node: int | None = None) -> tuple[list[dict[str, Any]], list[Account]]:
    """Return the objects to apply and the report. Raises InvalidField for what cannot be converted.

    `chips_per_node` is how many chips (16 or 8) the manifest counts per node; by default as the manifest says.
    """
    if chips_per_node is not None and chips_per_node not in CHIPS_PER_NODE_KNOWN:
        known = " or ".join(map(str, CHIPS_PER_NODE_KNOWN))
        raise InvalidField(f"a node cannot have {chips_per_node} chips; use {known}", field="chipsPerNode")
    objects: list[dict[str, Any]] = []
    accounts: list[Account] = []
    for document in documents:
        if document is None:
            continue
        body = _checked(document)
        found = Accounts(f"{body['kind']}/{body['metadata']['name']}")
        try:
            objects += _converted(body, chips_per_node, found)
        except InvalidField as wrong:
            raise InvalidField(f"{found.object}: {wrong.message}", field=wrong.field) from wrong
        accounts += found.lines
    return objects, accounts


def _converted(body: dict[str, Any], given: int | None, accounts: Accounts) -> list[dict[str, Any]]:
    version, kind = body["apiVersion"], body["kind"]
    if (version, kind) == VOLCANO_JOB:
        return convert_volcano(body, given, accounts)
    if (version, kind) == ASCEND_JOB:
        return convert_ascend(body, given, accounts)
    group = version.partition("/")[0]
    if why := OF_VOLCANO.get((group, kind)):
        accounts.left_out("the object", why)
        return []
    if group in UNKNOWN:
        raise InvalidField(f"cannot convert {kind} of {version}; rewrite it as Jobs", field="kind")
    if kind in TEMPLATES and group in ("v1", "apps", "batch"):
        template = _template(body, kind)
        check(body, {"metadata": POD["metadata"]})
        check(template, POD, TEMPLATES[kind])
        notes = {**(body["metadata"].get("labels") or {}), **(body["metadata"].get("annotations") or {})}
        rewrite_template(template, TEMPLATES[kind], notes, given, accounts)
    return [body]


def _template(body: dict[str, Any], kind: str) -> dict[str, Any]:
    found: Any = body
    for word in filter(None, TEMPLATES[kind].split(".")):
        found = found.get(word) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise InvalidField("is required and must be an object", field=TEMPLATES[kind])
    return found


def _checked(document: Any) -> dict[str, Any]:
    """A copy of the document to work on. Raises InvalidField if it is not a Kubernetes object."""
    if not isinstance(document, dict):
        raise InvalidField("a manifest's documents must be objects", field="document")
    body = deepcopy(document)
    for word in ("apiVersion", "kind"):
        if not isinstance(body.get(word), str):
            raise InvalidField("is required and must be a string", field=word)
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise InvalidField("is required and must be a string (generateName is not converted)", field="metadata.name")
    return body
