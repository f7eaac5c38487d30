"""MemoryGrant: the node memory allocated to a deployment, and its division between the two caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infer_workload.contract.caches import CacheMemoryView
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_key import name_of, sibling_key

GIB = 1 << 30
GRANTED = "Granted"


def allocation_key(deployment: str) -> str:
    """The key of a deployment's allocation."""
    return sibling_key(deployment, f"{name_of(deployment)}-ems")


@dataclass(frozen=True)
class MemoryGrant:
    """GiB by node, requested and allocated, and why these differ; last checked `at`."""

    allocation: str
    requested: Mapping[str, int] = field(default_factory=dict)
    allocated: Mapping[str, int] = field(default_factory=dict)
    reason: str = GRANTED
    message: str = ""
    at: float = 0.0

    @property
    def granted(self) -> bool:
        return self.reason == GRANTED

    def model_cache_bytes(self, share: float) -> dict[str, float] | None:
        """Bytes by node for the model cache, at most `share` each; None if nothing is requested, because the deployment
        has no layout."""
        return {node: min(share, gib * GIB) for node, gib in self.allocated.items()} if self.requested else None

    def context_cache_bytes(self, share: float) -> dict[str, float]:
        """Bytes by node left for the context cache."""
        return {node: max(0.0, gib * GIB - share) for node, gib in self.allocated.items()}

    def condition(self) -> tuple[str, bool, str, str]:
        """Type, status, reason and message."""
        allocated, requested = sum(self.allocated.values()), sum(self.requested.values())
        text = f"{allocated} of {requested} GiB allocated on {pluralized(len(self.allocated), 'node')}"
        return "CacheMemory", self.granted, self.reason, text if self.granted else self.message

    def view(self) -> CacheMemoryView:
        return CacheMemoryView(
            allocation=name_of(self.allocation),
            requested_gib=sum(self.requested.values()),
            granted_gib=sum(self.allocated.values()),
            nodes=dict(sorted(self.allocated.items())),
            reason=self.reason,
            message=self.message,
        )
