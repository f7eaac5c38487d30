"""PoolScale: the number of nodes of each pool that an autoscaler requests, overriding the spec.

The sum is the requested size of the instance. While it has another size (nodes are starting, leaving or lost), `fit`
splits the nodes there are: every node has a role, nodes change role only where the other pool is to grow, and surplus
nodes stay in their pool. With both zero the deployment is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infer_workload.contract.roles import ScaleRequest

ROLE_CHANGE_S: float = ScaleRequest.model_fields["deadline_s"].default
"""Default time, in emulated seconds, that requests have to finish on nodes that change role."""


@dataclass(frozen=True)
class PoolScale:
    """Nodes of each pool. Of these, `caching` lend their memory to the context cache; None: all do."""

    prefill: int
    decode: int
    caching: int | None = None

    @classmethod
    def from_row(cls, row: dict[str, Any] | None) -> PoolScale | None:
        if not row:
            return None
        asked = ScaleRequest.from_stored(row)
        return cls(asked.prefill_nodes, asked.decode_nodes, asked.caching_nodes)

    @property
    def nodes(self) -> int:
        return self.prefill + self.decode

    @property
    def is_zero(self) -> bool:
        return not self.prefill and not self.decode

    def fit(self, nodes: int, prefill: int, decode: int, instance: int) -> tuple[int, int]:
        """Split `nodes`, at least two, into (prefill, decode), given how many have these roles now.

        Prefill gets whole instances of `instance` nodes, as far as the requested size is a multiple of that.
        """
        if nodes == self.nodes:
            return self.prefill, self.decode
        if nodes > self.nodes:
            over = nodes - self.nodes
            kept = min(max(0, prefill - self.prefill), over - min(over, max(0, decode - self.decode)))
            kept -= kept % instance
            return self.prefill + kept, self.decode + over - kept
        stays = min(self.prefill, prefill), min(self.decode, decode)
        if not all(stays):  # one role is new, or has lost all of its nodes
            share = round(nodes * self.prefill / self.nodes)
            read = min(max(1, share - share % instance), nodes - 1)
            return read, nodes - read
        rest = nodes - sum(stays)
        more = min(rest, self.prefill - stays[0])
        more -= more % instance if stays[0] + more != self.prefill else 0
        return stays[0] + more, stays[1] + rest - more
