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
from matrixcontainer.conversion.report import Report
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, amount
from matrixcontainer.operator.workload import NPU_RESOURCE

RESOURCES = (NPU_RESOURCE, "huawei.com/ascend-1980")
CHIPS_PER_NODE = 16
"""Default where a manifest does not say: the dies of a supernode's node."""
SUPPORTED_CHIPS_PER_NODE = (8, 16)
POLICY = "huawei.com/schedule_policy"
HARDWARE_SELECTORS = ("accelerator-type", "accelerator", "host-arch", "servertype")
"""Node labels of MindCluster that nodes here do not have."""


def chips_per_node(template: dict[str, Any], annotations: dict[str, str], override: int | None) -> int:
    """How many chips a pod template counts per node. `override` is the user's choice and takes precedence."""
    if override is not None:
        return override
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    texts = (annotations.get(POLICY, ""), selector.get("accelerator-type", ""))
    for pattern, text in zip((r"chip\d+-node(\d+)", r"(?:module|card)-\w+?-(\d+)"), texts, strict=True):
        if (match := re.search(pattern, text)) and int(match[1]) in SUPPORTED_CHIPS_PER_NODE:
            return int(match[1])
    return CHIPS_PER_NODE


@dataclass(frozen=True)
class ChipConverter:
    """Rewrites the chip requests of pod templates to NPUs."""

    per_node: int
    report: Report

    def rewrite(self, spec: dict[str, Any], path: str) -> bool:
        """Rewrite the requests in place; return whether there were any. Raises InvalidField for a fraction of an NPU or
        more than a node."""
        rewritten = False
        for container_path, amounts in _amounts(spec, path):
            for resource in [name for name in RESOURCES if name in amounts]:
                rewritten = True
                self._rewrite_amount(amounts, resource, f"{container_path}[{resource}]")
        return rewritten

    def _rewrite_amount(self, amounts: dict[str, Any], resource: str, path: str) -> None:
        try:
            chips = amount(amounts.pop(resource))
        except InvalidQuantity as error:
            raise InvalidField(str(error), field=path) from error
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
            self.report.translated(path, f"{float(chips):g} of {self.per_node} a node: {NPU_RESOURCE} {npus} of 8")


def _amounts(spec: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests and limits of a pod's containers, each with its path."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            for section in ("requests", "limits"):
                amounts = (container.get("resources") or {}).get(section)
                if amounts:
                    yield f"{path}.{kind}[{index}].resources", amounts
