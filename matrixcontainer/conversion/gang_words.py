"""Conversion of pod templates for Volcano or MindCluster to this scheduler's terms: gang, gang size and topology."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.conversion.accounts import Accounts
from matrixcontainer.conversion.chips import HARDWARE_SELECTORS, ChipCount, chips_per_node
from matrixcontainer.scheduler.gangs import SCHEDULER_NAME
from matrixcontainer.scheduler.pod_groups import GROUP_ANNOTATIONS

SIZE_LABEL = "huawei.com/schedule_minAvailable"
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
HYPERNODE = "volcano.sh/hypernode"
OF_THE_JOB = ("sp-block", "reserve-nodes")
"""Annotations that MindCluster reads from a job, and the scheduler here from its pods."""
MODES = {"hard": "required", "soft": "preferred"}


def rewrite_template(
    template: dict[str, Any], path: str, notes: dict[str, str], given: int | None, accounts: Accounts
) -> bool:
    """Rewrite a pod template in place; return whether it requests NPUs and therefore got our scheduler. `notes` are the
    annotations and labels of the enclosing job."""
    metadata, spec = _object(template, "metadata", path), _object(template, "spec", path)
    path = f"{path}." if path else ""
    own = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    count = ChipCount(chips_per_node(template, {**notes, **own}, given), accounts)
    if not count.rewrite(spec, f"{path}spec"):
        return False
    before = spec.get("schedulerName")
    spec["schedulerName"] = SCHEDULER_NAME
    if before != SCHEDULER_NAME:
        accounts.translated(f"{path}spec.schedulerName", f"{before or 'default-scheduler'}: {SCHEDULER_NAME}")
    _drop_selectors(spec, path, accounts)
    for word in OF_THE_JOB:
        if word in own:
            accounts.kept(f"{path}metadata.annotations[{word}]", "read by the scheduler here")
        elif word in notes:
            metadata.setdefault("annotations", {})[word] = str(notes[word])
            accounts.translated(f"metadata.annotations[{word}]", "on the pods")
    return True


def _object(template: dict[str, Any], word: str, path: str) -> dict[str, Any]:
    """An object field of the template, created if missing. Raises InvalidField if it is not an object."""
    found = template.setdefault(word, {})
    if not isinstance(found, dict):
        raise InvalidField("must be an object", field=f"{path}.{word}".lstrip("."))
    return found


def join_gang(template: dict[str, Any], name: str, size: int) -> None:
    """Make the template's pods members of the gang `name` of `size` pods."""
    metadata = template["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), GROUP_ANNOTATIONS[0]: name}
    metadata["labels"] = {**(metadata.get("labels") or {}), SIZE_LABEL: str(size)}


def keep_near(template: dict[str, Any], topology: dict[str, Any], accounts: Accounts) -> None:
    """Translate Volcano's `networkTopology` to a pod annotation. Raises InvalidField for an unknown mode."""
    mode = topology.get("mode", "hard")
    if mode not in MODES:
        raise InvalidField(f"unknown mode {mode!r}; use hard or soft", field="spec.networkTopology.mode")
    key = TOPOLOGY.format(MODES[mode])
    template["metadata"].setdefault("annotations", {})[key] = HYPERNODE
    accounts.translated("spec.networkTopology", f"{mode}: pod annotation {key}: {HYPERNODE} (one supernode)")


def _drop_selectors(spec: dict[str, Any], path: str, accounts: Accounts) -> None:
    selector = spec.get("nodeSelector") or {}
    for word in HARDWARE_SELECTORS:
        if selector.pop(word, None) is not None:
            accounts.left_out(f"{path}spec.nodeSelector[{word}]", "every node here is a CloudMatrix384 node")
    if "nodeSelector" in spec and not selector:
        del spec["nodeSelector"]
