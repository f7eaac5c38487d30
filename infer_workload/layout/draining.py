"""Drain: nodes leave a deployment after their requests have finished.

Nothing new begins on whatever the layout without the nodes does not use: the nodes themselves, and roles that would
change. Running requests finish. Once idle, or at the deadline, the deployment switches to that layout; remaining
requests are requeued with the tokens they have. From then on the nodes may be released. A drain ends when the fabric no
longer shows its nodes, or when it is withdrawn.

If every prefill instance leaves, prompts would have to wait until the end of the drain. Then the old instances continue
until their successors, on former decode nodes, have loaded: decode is drained first, then prefill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from infer_workload.contract.roles import DrainRequest, DrainView
from infer_workload.layout.deployment import Deployment, DoesNotFit, Pools, with_fabric
from infer_workload.layout.recovery import LayoutChange, plan_change, plan_scale_out
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.quantities import parse_timestamp, timestamp

NO_POOLS = Pools((), (), ())


@dataclass
class Drain:
    """The nodes, the deadline (emulated seconds since the epoch), and whether they have been drained."""

    nodes: frozenset[str]
    deadline_at: float
    drained: bool = False
    requests_at_start: int = 0
    by: str = ""
    absent: frozenset[str] = frozenset()
    """Those of the nodes that the deployment did not have when it began."""
    added_nodes: frozenset[str] = frozenset()
    """Loaded nodes that get a role when this is over."""

    @classmethod
    def from_request(cls, request: DrainRequest, now: float, fabric: Fabric | None) -> Drain:
        """A requested drain that begins now. `fabric`: the deployment's nodes, used or not; None without a view."""
        nodes = frozenset[str](request.nodes)
        absent = nodes - (fabric.all_nodes if fabric is not None else set())
        return cls(nodes, now + request.deadline_s, by=request.by, absent=absent)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Drain:
        """A drain from its stored row. It counts as drained, as nothing runs after a restart."""
        view = DrainView.from_stored(row)
        until, at_start, absent = parse_timestamp(view.deadline_at), view.requests_at_start, frozenset(view.absent)
        return cls(frozenset(view.nodes), until, True, at_start, view.by, absent)

    def view(self, requests: int = 0) -> DrainView:
        return DrainView(
            nodes=sorted(self.nodes),
            absent=sorted(self.absent),
            deadline_at=timestamp(self.deadline_at),
            state="Drained" if self.drained else "Draining",
            by=self.by,
            requests=requests,
            requests_at_start=self.requests_at_start,
        )

    def is_complete(self, fabric: Fabric) -> bool:
        """Whether all its nodes have left the fabric."""
        return not self.nodes & fabric.all_nodes

    def target(self, current: Deployment, fabric: Fabric) -> Pools:
        """The pools without the nodes; NOTHING if the remaining ones cannot serve."""
        try:
            return self._final_change(current, fabric).deployment.pools
        except DoesNotFit:
            return NO_POOLS

    def plan_successors(self, current: Deployment, fabric: Fabric) -> LayoutChange | None:
        """The layout with old and new prefill instances side by side, and the decode pool of the final layout.

        None if a present prefill instance stays, or if the final layout has none.
        """
        try:
            later = self._final_change(current, fabric)
        except DoesNotFit:
            return None
        now, then = current.pools, later.deployment.pools
        if not then.prefill or set(now.prefill) & set(then.prefill):
            return None
        beside = replace(
            current,
            pools=Pools(now.prefill + then.prefill, then.decode, now.caching),
            decode_layout=later.deployment.decode_layout,
            prefill_layouts=current.prefill_layouts + later.deployment.prefill_layouts,
            kv_tokens_per_die=later.deployment.kv_tokens_per_die,
        )
        beside = with_fabric(beside, fabric)
        return LayoutChange(beside, later.pause_s, later.start_s)

    def _final_change(self, current: Deployment, fabric: Fabric) -> LayoutChange:
        if not self.added_nodes:
            return plan_change(current, fabric.excluding(self.nodes), at_any_size=True)
        return plan_scale_out(
            current, fabric.restricted_to((current.pools.nodes | self.added_nodes) & set(fabric.nodes))
        )
