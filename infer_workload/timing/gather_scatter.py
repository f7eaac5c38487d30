"""Token exchange by All-Gather and Reduce-Scatter, for machines with two tiers: links in a node, RoCE between nodes.

Every card receives the tokens of all cards, computes those routed to its experts, and the partial results are summed on
the way back. Between nodes, each card exchanges with the cards at the same position in the other nodes, and data that
has arrived is then passed on inside the node. Small exchanges run the two phases one after the other; large ones, in
prefill, use both tiers at once: HCCL's Pipeline algorithm for All-Gather and Reduce-Scatter on these servers (CANN
documentation, HCCL_ALGO). The Atlas 800I A2 works this way. Links inside a node carry no other traffic; between nodes
the fabric sets the rate. Seconds, bytes per card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from infer_workload.timing.calibration import RDMA, UB, Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import EXPERTS, Operator
from infer_workload.timing.operators import UB as PORT

INT8, BF16 = 1, 2
"""Bytes of an element: gathered tokens are quantised (FlashComm), partial sums are not."""
ALL_TO_ALL = "all-to-all"


def exchange_among(
    fabric: Fabric, calibration: Calibration, nodes: Sequence[str], ranks: int, model: ServedModel
) -> Exchange:
    """Return the exchange among `ranks` dies on these nodes: over UB if it connects the machine's nodes, else in two
    tiers."""
    if UB in calibration.planes:
        return Exchange(fabric, calibration, tuple(nodes), ranks)
    return GatherScatter(fabric, calibration, tuple(nodes), ranks, model.hidden)


@dataclass(frozen=True)
class GatherScatter(Exchange):
    """Exchange among `ranks` cards that fill one node after another."""

    hidden: int = 7168

    @property
    def plane(self) -> str:
        return RDMA

    def dispatch(self, tokens: float, copies: float | None = None) -> Operator:
        return self._tiers("all-gather", tokens * self.hidden * INT8)

    def combine(self, tokens: float, copies: float | None = None) -> Operator:
        return self._tiers("reduce-scatter", tokens * self.hidden * BF16)

    def bulk_dispatch(self, tokens: float, copies: float) -> Operator:
        return self._tiers("all-gather", tokens * self.hidden * INT8, at_once=True)

    def bulk_combine(self, tokens: float, copies: float) -> Operator:
        return self._tiers("reduce-scatter", tokens * self.hidden * BF16, at_once=True)

    def bulk(
        self, name: str, stream: str, size_bytes: float, rate: str = "ub_efficiency", ranks: int | None = None
    ) -> Operator:
        """A card receives `size_bytes` from the others: over RoCE what no card of its own node can pass on, and the
        rest inside the node. Both tiers transfer at once."""
        ranks = ranks or self.ranks
        inside, nodes = self._group_shape(ranks)
        if nodes == 1:
            return super().bulk(name, stream, size_bytes, rate, ranks)
        across = (ranks - inside if name == ALL_TO_ALL else nodes - 1) / (ranks - 1)
        within_s = self._wire_s((1.0 - across) * size_bytes, getattr(self.calibration, rate))
        between_s = self._inter_node_s(across * size_bytes)
        return Operator(
            name, stream, PORT, 0.0, start_s=2 * self.calibration.exchange_start_us * 1e-6,
            wire_s=max(between_s, within_s), wire_bytes=size_bytes, leaving_bytes=across * size_bytes,
            rate="rdma_efficiency" if between_s > within_s else rate,
        )  # fmt: skip

    def rate_gbps(self, efficiency: float = 1.0) -> float:
        """Rate inside a node: one link to each other card that takes part."""
        current = self.calibration
        links = min(self._group_shape(self.ranks)[0] - 1, current.ub_sub_planes)
        return links * current.ub_port_gbps * efficiency

    @property
    def rates_gbps(self) -> tuple[float, ...]:
        return self.rate_gbps(), self._inter_node_gbps

    @property
    def _inter_node_gbps(self) -> float:
        """Rate of the slowest card between nodes while all send at once."""
        key = RDMA, self.nodes, self.ranks
        rate = self.fabric.reduced.get(key)
        if rate is None:
            cards = self.calibration.dies_per_node
            ways = [self.fabric.die_gbps(RDMA, node, cards, into) for node in self.nodes for into in (False, True)]
            rate = self.fabric.reduced[key] = min(ways, default=0.0)
        return rate

    def _group_shape(self, ranks: int) -> tuple[int, int]:
        """Return (cards per node, nodes) for that many ranks."""
        inside = min(ranks, self.calibration.dies_per_node)
        return inside, ranks // inside

    def _inter_node_s(self, size_bytes: float) -> float:
        rate = self._inter_node_gbps * 1e9 * self.calibration.rdma_efficiency
        return size_bytes / rate if rate > 0 else inf

    def _tiers(self, name: str, own_bytes: float, at_once: bool = False) -> Operator:
        """Each card's `own_bytes` go to all other cards; with `at_once` both tiers transfer in parallel."""
        current = self.calibration
        inside, nodes = self._group_shape(self.ranks)
        between_s = self._inter_node_s(own_bytes * (nodes - 1)) if nodes > 1 else 0.0
        inside_bytes = own_bytes * nodes * (inside - 1)
        inside_s = self._wire_s(inside_bytes, current.ub_efficiency)
        wire = max(between_s, inside_s) if at_once else between_s + inside_s
        starts = (1 + (nodes > 1)) * current.exchange_start_us * 1e-6
        return Operator(
            name, EXPERTS, PORT, 0.0, start_s=starts, wire_s=wire,
            wire_bytes=own_bytes * (nodes - 1) + inside_bytes, leaving_bytes=own_bytes * (nodes - 1),
            rate="rdma_efficiency" if between_s > inside_s else "ub_efficiency",
        )  # fmt: skip
