"""How many nodes each pool is to have: what an autoscaler asks for, over the sizes of the spec.

The sum is the size that the instance is to have. While it has another one (nodes still start, or have yet to leave, or
are lost) `fitted` splits what there is: every node plays a role, nobody changes its role but where the other one is to
be larger, and what is over stays where it is. Both zero: the deployment is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infer_workload.contract.roles import ScaleRequest

ROLE_CHANGE_S: float = ScaleRequest.model_fields["deadline_s"].default
"""Emulated seconds that what runs in roles that change may take, unless somebody says otherwise."""


@dataclass(frozen=True)
class PoolScale:
    """Nodes of each pool; caching is in the memory of the others, None: of all of them."""

    prefill: int
    decode: int
    caching: int | None = None

    @classmethod
    def of(cls, row: dict[str, Any] | None) -> PoolScale | None:
        if not row:
            return None
        asked = ScaleRequest.from_stored(row)
        return cls(asked.prefill_nodes, asked.decode_nodes, asked.caching_nodes)

    @property
    def nodes(self) -> int:
        return self.prefill + self.decode

    @property
    def zero(self) -> bool:
        return not self.prefill and not self.decode

    def fitted(self, nodes: int, prefill: int, decode: int, instance: int) -> tuple[int, int]:
        """Nodes for prefill and decode out of `nodes`, at least two, where so many play these roles now.

        Prefill has whole instances of so many nodes, as far as it is asked for so.
        """
        if nodes == self.nodes:
            return self.prefill, self.decode
        if nodes > self.nodes:
            over = nodes - self.nodes
            kept = min(max(0, prefill - self.prefill), over - min(over, max(0, decode - self.decode)))
            kept -= kept % instance
            return self.prefill + kept, self.decode + over - kept
        stays = min(self.prefill, prefill), min(self.decode, decode)
        if not all(stays):  # one role begins, or has lost everybody
            share = round(nodes * self.prefill / self.nodes)
            read = min(max(1, share - share % instance), nodes - 1)
            return read, nodes - read
        rest = nodes - sum(stays)
        more = min(rest, self.prefill - stays[0])
        more -= more % instance if stays[0] + more != self.prefill else 0
        return stays[0] + more, stays[1] + rest - more
