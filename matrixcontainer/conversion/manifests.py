"""A manifest of several objects, converted: what runs here, and an account of every field that is not what it was.

Volcano Jobs and AscendJobs become Jobs; pods and what makes pods have their NPUs counted anew and another scheduler;
objects of Volcano that only its own scheduler reads are left out; everything else is as it was.
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
"""Where each kind of Kubernetes that makes pods has their template; a pod is one itself."""
OF_VOLCANO = {
    ("scheduling.volcano.sh", "Queue"): "there are no queues: quotas of the namespace's project count",
    ("topology.volcano.sh", "HyperNode"): "a supernode is one; every Node bears the label volcano.sh/hypernode",
    ("nodeinfo.volcano.sh", "Numatopology"): "the machine's sockets are MatrixResource's",
}
UNKNOWN = {"batch.volcano.sh", "flow.volcano.sh", "training.volcano.sh", "mindxdl.gitee.com"}
"""Groups of Volcano and MindCluster, of which other kinds than those above are refused."""


def convert(documents: Iterable[Any], chips_per_node: int | None = None) -> tuple[list[dict[str, Any]], list[Account]]:
    """The objects to apply, and what became of each field. Raises InvalidField for what cannot be converted.

    `chips_per_node` is how many chips (16 or 8) the manifest calls a whole node; by default what it says itself.
    """
    if chips_per_node is not None and chips_per_node not in CHIPS_PER_NODE_KNOWN:
        known = " or ".join(map(str, CHIPS_PER_NODE_KNOWN))
        raise InvalidField(f"{chips_per_node} is no number of chips of a node; use {known}", field="chipsPerNode")
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
        raise InvalidField(f"{kind} of {version} is not converted; make it Jobs", field="kind")
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
        raise InvalidField("has to be there, as an object", field=TEMPLATES[kind])
    return found


def _checked(document: Any) -> dict[str, Any]:
    """A copy that may be changed. Raises InvalidField for what is no Kubernetes object."""
    if not isinstance(document, dict):
        raise InvalidField("a document of a manifest has to be an object", field="document")
    body = deepcopy(document)
    for word in ("apiVersion", "kind"):
        if not isinstance(body.get(word), str):
            raise InvalidField("has to be there, as text", field=word)
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise InvalidField("has to be there, as text (generateName is not converted)", field="metadata.name")
    return body
