"""Token exchange by All-Gather and Reduce-Scatter, on machines of two tiers: links in a node, RoCE between nodes.

Every card gets the tokens of all, computes those its experts are asked for, and the partial results are summed on the
way back. Between nodes each card talks to the cards of its own place; what has arrived is then passed on in the node.
Small exchanges do one after the other; in large ones, of prefill, both tiers' links are at work at once: HCCL's
Pipeline algorithm for All-Gather and Reduce-Scatter on these servers (CANN documentation, HCCL_ALGO). The Atlas 800I A2
works so. Seconds, bytes a card.
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_workload.timing.collectives import Exchange
from infer_workload.timing.operators import EXPERTS, UB, Operator

INT8, BF16 = 1, 2
"""Bytes of an element: gathered tokens are quantised (FlashComm), partial sums are not."""


@dataclass(frozen=True)
class GatherScatter(Exchange):
    """Exchange among `ranks` cards, `cards_per_node` in each node."""

    cards_per_node: int = 8
    hidden: int = 7168

    def dispatch(self, tokens: float, copies: float | None = None) -> Operator:
        return self._tiers("all-gather", tokens * self.hidden * INT8)

    def combine(self, tokens: float, copies: float | None = None) -> Operator:
        return self._tiers("reduce-scatter", tokens * self.hidden * BF16)

    def bulk_dispatch(self, tokens: float, copies: float) -> Operator:
        return self._tiers("all-gather", tokens * self.hidden * INT8, at_once=True)

    def bulk_combine(self, tokens: float, copies: float) -> Operator:
        return self._tiers("reduce-scatter", tokens * self.hidden * BF16, at_once=True)

    def rate_gbps(self, efficiency: float = 1.0) -> float:
        """Inside a node: one link to each of the other cards that take part."""
        current = self.calibration
        links = min(min(self.ranks, self.cards_per_node) - 1, int(current.ub_sub_planes))
        return links * current.ub_port_gbps * efficiency

    def _tiers(self, name: str, own_bytes: float, at_once: bool = False) -> Operator:
        """What each card contributes goes to all others; `at_once`: over both tiers' links side by side."""
        current = self.calibration
        inside = min(self.ranks, self.cards_per_node)
        nodes = self.ranks // inside
        between_s = own_bytes * (nodes - 1) / (current.rdma_port_gbps * 1e9 * current.rdma_efficiency)
        inside_bytes = own_bytes * nodes * (inside - 1)
        inside_s = self._wire_s(inside_bytes, current.ub_efficiency)
        wire = max(between_s, inside_s) if at_once else between_s + inside_s
        starts = (1 + (nodes > 1)) * current.exchange_start_us * 1e-6
        return Operator(
            name, EXPERTS, UB, 0.0, start_s=starts, wire_s=wire,
            wire_bytes=own_bytes * (nodes - 1) + inside_bytes, rate="rdma_efficiency" if nodes > 1 else "ub_efficiency",
        )  # fmt: skip
