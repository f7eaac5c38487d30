"""PodGroups, where a cluster has them: the minimum number of pods and their topology constraint. Read, never written.

Volcano (scheduling.volcano.sh/v1beta1) and coscheduling (scheduling.x-k8s.io/v1alpha1) both define this kind, with the
same `spec.minMember`. Volcano's `spec.networkTopology` names a tier of HyperNodes: tier 1 is one supernode, as in CCE,
and higher tiers are treated the same, as there are no larger domains.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.errors import NotFound
from matrixcontainer.client.client import COSCHEDULING_GROUP, VOLCANO_GROUP, KubeClient
from matrixresource.contract.requested_capacity import PlacementPolicy

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")


@dataclass(frozen=True)
class PodGroup:
    """What a PodGroup requests."""

    min_member: int = 1
    placement: PlacementPolicy | None = None
    annotations: dict[str, str] = field(default_factory=dict)


def group_named(pod: dict[str, Any]) -> str | None:
    """Name of the PodGroup that a pod refers to, if any."""
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    found = [annotations.get(key) for key in GROUP_ANNOTATIONS] + [labels.get(key) for key in GROUP_LABELS]
    return next((name for name in found if name), None)


def read_group(body: dict[str, Any]) -> PodGroup:
    """Parse a PodGroup of either API group."""
    spec = body.get("spec") or {}
    min_member, topology = spec.get("minMember"), spec.get("networkTopology")
    placement = None
    if topology:
        placement = PlacementPolicy(policy="pack", level="supernode", required=topology.get("mode", "hard") == "hard")
    return PodGroup(max(int(min_member or 1), 1), placement, body["metadata"].get("annotations") or {})


async def pod_groups(kube: KubeClient, pods: list[dict[str, Any]]) -> dict[tuple[str, str], PodGroup]:
    """The PodGroups that `pods` refer to, by namespace and name. Makes no request if they refer to none."""
    named = {(pod["metadata"]["namespace"], name) for pod in pods if (name := group_named(pod))}
    if not named:
        return {}
    found = []
    with contextlib.suppress(NotFound):  # the CRD is not installed
        found += (await kube.list(COSCHEDULING_GROUP))[0]
    with contextlib.suppress(NotFound):
        found += (await kube.list(VOLCANO_GROUP))[0]
    groups = {(body["metadata"]["namespace"], body["metadata"]["name"]): read_group(body) for body in found}
    return {key: group for key, group in groups.items() if key in named}
