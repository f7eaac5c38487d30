"""What MatrixResource tells Prometheus of the machine and of its decisions, besides how it serves requests.

Gauges are brought up to date on a period, from a report that is counted anew only where something has changed;
decisions are counted as they are made.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy import func, select

from matrixcommon.persistence.decision_metrics import VerbOutcome
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.store.defragmentations import DEFRAGMENTATION_STATES, DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

AGENT_STATES = ("Connected", "Stale", "Lost")
DECISION_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class ResourceMetrics:
    """`count` for the gauges, `decided` for one decision."""

    def __init__(self, registry: CollectorRegistry, store: ResourceStore, capacity: CapacityReport) -> None:
        self._store = store
        self._capacity = capacity

        def gauge(name: str, says: str, *labels: str) -> Gauge:
            return Gauge(name, says, labels, registry=registry)

        self._agents = gauge("node_agents", "Nodes by what is known of their agent.", "agent")
        self._states = gauge("nodes", "Nodes by state.", "state")
        self._health = gauge("nodes_health", "Nodes by health.", "health")
        self._free = gauge("nodes_free", "Whole nodes that newcomers may have.")
        self._npus = gauge("npus_free", "NPUs that newcomers may have; a die counts half.")
        self._spares = gauge("spares", "Whole nodes held as spares.")
        self._largest = gauge("largest_block_nodes", "The most whole nodes one gang can have in a domain.", "level")
        self._blocks = gauge("placeable_blocks", "Gangs of so many nodes that fit at once.", "level", "nodes")
        self._scattered = gauge("fragmentation_ratio", "What of the free capacity cannot be had together.", "level")
        self._used = gauge("utilisation_ratio", "Share of the dies that is held.", "level", "domain")
        self._plans = gauge("defragmentations", "Defragmentations by state.", "state")
        self._decisions = Counter(
            "decisions",
            "Verbs over allocations by how they came out.",
            ["verb", "outcome", "reason"],
            registry=registry,
        )
        self._seconds = Histogram(
            "decision_seconds",
            "Wall time of a verb up to its commit.",
            ["verb"],
            registry=registry,
            buckets=DECISION_SECONDS,
        )

    def decided(self, made: VerbOutcome) -> None:
        self._decisions.labels(made.verb, made.outcome, made.reason).inc()
        self._seconds.labels(made.verb).observe(made.seconds)

    async def count(self) -> str:
        with self._store.reading() as session:
            agents = Tally(dict(session.execute(select(NodeRow.agent, func.count()).group_by(NodeRow.agent)).all()))
            plans = Tally(session.scalars(select(DefragmentationRow.state)))
        seen = self._capacity.view()
        _show(self._agents, {state: agents[state] for state in AGENT_STATES})
        _show(self._plans, {state: plans[state] for state in DEFRAGMENTATION_STATES.states})
        _show(self._states, seen.nodes_by_state)
        _show(self._health, seen.nodes_by_health)
        _show(self._largest, seen.largest_block)
        _show(self._scattered, seen.fragmentation)
        self._free.set(seen.nodes_free)
        self._npus.set(seen.npus_free)
        self._spares.set(seen.spares)
        self._blocks.clear()
        for block in seen.blocks:
            self._blocks.labels(block.level, str(block.nodes)).set(block.count)
        self._used.clear()
        for domain in (*seen.cabinets, *seen.supernodes):
            self._used.labels(domain.level, domain.domain).set(domain.utilisation)
        return f"{seen.nodes} nodes"


def _show(gauge: Gauge, values: Mapping[str, float]) -> None:
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
