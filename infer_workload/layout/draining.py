"""A drain: nodes that are to leave a deployment, and how what runs on them comes to its end first.

Nothing new begins on what the layout without them does not use: the nodes themselves, and roles that would change.
What runs there finishes. When nothing runs there any more, or at the deadline, the deployment goes over to that layout;
what is left by then is handed over through the queue, with the tokens it has. From then on the nodes may be released.
A drain ends when the fabric no longer shows its nodes, or when it is withdrawn.

Where every prefill instance is among what leaves, prompts would wait until the drain's end. There the old instances go
on until their successors, on nodes that decoded before, have loaded: decode is drained first, then prefill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from infer_workload.contract.roles import DrainRequest, DrainView
from infer_workload.layout.deployment import Deployment, DoesNotFit, Pools, with_fabric
from infer_workload.layout.recovery import Change, plan_change, plan_gain
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.quantities import from_timestamp, timestamp

NOTHING = Pools((), (), ())


@dataclass
class Drain:
    """Which nodes, until when (emulated seconds since the epoch), and whether nothing runs there any more."""

    nodes: frozenset[str]
    deadline_at: float
    drained: bool = False
    requests_at_start: int = 0
    by: str = ""
    absent: frozenset[str] = frozenset()
    """Of the nodes, those that had left before, or that are somebody else's."""
    gained: frozenset[str] = frozenset()
    """Nodes that have loaded and play no role before this is over."""

    @classmethod
    def asked(cls, request: DrainRequest, now: float, fabric: Fabric | None) -> Drain:
        """From `now` on. `fabric`: what the deployment has, whether it uses it or not; None where nothing is shown."""
        nodes = frozenset[str](request.nodes)
        absent = nodes - (fabric.everybody if fabric is not None else set())
        return cls(nodes, now + request.deadline_s, by=request.by, absent=absent)

    @classmethod
    def of(cls, row: dict[str, Any]) -> Drain:
        """From its row: the process has started anew, so nothing runs anywhere."""
        view = DrainView.from_stored(row)
        until, at_start, absent = from_timestamp(view.deadline_at), view.requests_at_start, frozenset(view.absent)
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

    def over(self, fabric: Fabric) -> bool:
        """Whether all its nodes have left the fabric."""
        return not self.nodes & fabric.everybody

    def target(self, current: Deployment, fabric: Fabric) -> Pools:
        """The pools once the nodes are gone; NOTHING where what stays cannot serve."""
        try:
            return self._later(current, fabric).deployment.pools
        except DoesNotFit:
            return NOTHING

    def successors(self, current: Deployment, fabric: Fabric) -> Change | None:
        """The layout in which old and new prefill instances stand side by side: decode is the later one's already.

        None where some instance that prefills now stays, or none ever will.
        """
        try:
            later = self._later(current, fabric)
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
        return Change(beside, later.pause_s, later.start_s)

    def _later(self, current: Deployment, fabric: Fabric) -> Change:
        if not self.gained:
            return plan_change(current, fabric.leaving_out(self.nodes), at_any_size=True)
        return plan_gain(current, fabric.only((current.pools.nodes | self.gained) & set(fabric.nodes)))
