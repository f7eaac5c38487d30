"""Conversion of chip counts to NPUs. A manifest counts chips per node as on its target hardware: 16 or 8.

A node of a CloudMatrix384 has 8 NPUs of two dies each; MindCluster counts its dies (`chip2-node16-sp`,
`module-a3-16-super-pod`). A node of the previous generation has 8 single-die chips (`module-910b-8`). Chips are
converted in proportion, so that a whole node stays a whole node.
Sources: MindCluster documentation, cluster scheduling, task YAML parameters `huawei.com/schedule_policy` and
`accelerator-type`; CCE user guide for the resource name `huawei.com/ascend-1980`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcontainer.conversion.accounts import Accounts
from matrixcontainer.kubeapi.meta.quantities import NoQuantity, amount
from matrixcontainer.operator.workload import NPU_RESOURCE

RESOURCES = (NPU_RESOURCE, "huawei.com/ascend-1980")
CHIPS_PER_NODE = 16
"""Default where a manifest does not say: the dies of a supernode's node."""
CHIPS_PER_NODE_KNOWN = (8, 16)
POLICY = "huawei.com/schedule_policy"
HARDWARE_SELECTORS = ("accelerator-type", "accelerator", "host-arch", "servertype")
"""Node labels of MindCluster that nodes here do not have."""


def chips_per_node(template: dict[str, Any], notes: dict[str, str], given: int | None) -> int:
    """How many chips a pod template counts per node. `given` is the user's choice and takes precedence."""
    if given is not None:
        return given
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    words = (notes.get(POLICY, ""), selector.get("accelerator-type", ""))
    for pattern, word in zip((r"chip\d+-node(\d+)", r"(?:module|card)-\w+?-(\d+)"), words, strict=True):
        if (found := re.search(pattern, word)) and int(found[1]) in CHIPS_PER_NODE_KNOWN:
            return int(found[1])
    return CHIPS_PER_NODE


@dataclass(frozen=True)
class ChipCount:
    """Rewrites the chip requests of pod templates to NPUs."""

    per_node: int
    accounts: Accounts

    def rewrite(self, spec: dict[str, Any], path: str) -> bool:
        """Rewrite the requests in place; return whether there were any. Raises InvalidField for a fraction of an NPU or
        more than a node."""
        asked = False
        for at, amounts in _amounts(spec, path):
            for resource in [name for name in RESOURCES if name in amounts]:
                asked = True
                self._rewrite_amount(amounts, resource, f"{at}[{resource}]")
        return asked

    def _rewrite_amount(self, amounts: dict[str, Any], resource: str, path: str) -> None:
        try:
            chips = amount(amounts.pop(resource))
        except NoQuantity as wrong:
            raise InvalidField(str(wrong), field=path) from wrong
        npus = chips * NPUS_PER_NODE / self.per_node
        if npus.denominator != 1 or npus < 1:
            raise InvalidField(
                f"{float(chips):g} chips, counted {self.per_node} per node, are {float(npus):g} NPUs; "
                "request whole NPUs of two dies each",
                field=path,
            )
        if npus > NPUS_PER_NODE:
            raise InvalidField(
                f"{float(chips):g} chips exceed a node's {self.per_node}; use pods of at most one node each", field=path
            )
        amounts[NPU_RESOURCE] = int(npus)
        if (resource, chips) != (NPU_RESOURCE, npus):
            self.accounts.translated(path, f"{float(chips):g} of {self.per_node} a node: {NPU_RESOURCE} {npus} of 8")


def _amounts(spec: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests and limits of a pod's containers, each with its path."""
    for kind in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(kind) or []):
            for list_ in ("requests", "limits"):
                found = (container.get("resources") or {}).get(list_)
                if found:
                    yield f"{path}.{kind}[{at}].resources", found
