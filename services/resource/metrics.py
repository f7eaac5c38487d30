"""Metrics of MatrixResource about the machine and its own decisions, in addition to those of its requests.

Gauges are updated periodically, from a report that is recomputed only where something changed; decisions are counted as
they are made.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import func, select

from matrixcommon.persistence.decision_metrics import VerbOutcome
from matrixcommon.telemetry.metric import Label, Metric
from matrixresource.nodes.fault_levels import HEALTH_ORDER
from matrixresource.nodes.states import NODE_STATES
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.store.defragmentations import DEFRAGMENTATION_STATES, DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

AGENT_STATES = ("Connected", "Stale", "Lost")
DECISION_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
VERBS = ("reserve", "move", "relocate", "cut_over", "replace", "release")

LEVEL = Label("level", "within one node, cabinet or supernode, or overall", ("node", "cabinet", "supernode", "all"))
VERB = Label("verb", "verb of the allocator", VERBS)
OUTCOME = Label("outcome", "outcome of the decision", ("Granted", "Refused"))

AGENTS = Metric(
    "matrixresource_node_agents",
    "gauge",
    "nodes",
    "Nodes by the state of their agent.",
    (Label("agent", "state of the agent", AGENT_STATES),),
    stability="stable",
)
NODES = Metric(
    "matrixresource_nodes",
    "gauge",
    "nodes",
    "Nodes by state.",
    (Label("state", "state of the node", tuple(NODE_STATES.states)),),
    stability="stable",
)
HEALTH = Metric(
    "matrixresource_nodes_health",
    "gauge",
    "nodes",
    "Nodes by health.",
    (Label("health", "health of the worst part", (*HEALTH_ORDER, "Unknown")),),
    stability="stable",
)
FREE = Metric(
    "matrixresource_nodes_free", "gauge", "nodes", "Whole nodes free for new allocations.", stability="stable"
)
NPUS = Metric(
    "matrixresource_npus_free",
    "gauge",
    "NPUs",
    "NPUs free for new allocations; a die counts as half.",
    stability="stable",
)
SPARES = Metric("matrixresource_spares", "gauge", "nodes", "Whole nodes held as spares.")
LARGEST = Metric(
    "matrixresource_largest_block_nodes",
    "gauge",
    "nodes",
    "The largest gang, in whole nodes, that fits into one domain.",
    (LEVEL,),
    stability="stable",
)
BLOCKS = Metric(
    "matrixresource_placeable_blocks",
    "gauge",
    "gangs",
    "Number of gangs of the given size that fit at the same time.",
    (LEVEL, Label("nodes", "nodes per gang", values_max=32)),
)
FRAGMENTATION = Metric(
    "matrixresource_fragmentation_ratio",
    "gauge",
    "ratio",
    "Fraction of the free capacity that cannot be allocated as one block.",
    (LEVEL,),
)
USED = Metric(
    "matrixresource_utilisation_ratio",
    "gauge",
    "ratio",
    "Fraction of dies that are allocated.",
    (LEVEL, Label("domain", "cabinet or supernode", per_supernode=13)),
    stability="stable",
    together=Label("domain", "12 cabinets and the supernode", per_supernode=13),
)
PLANS = Metric(
    "matrixresource_defragmentations",
    "gauge",
    "defragmentations",
    "Defragmentations by state.",
    (Label("state", "state of the plan", tuple(DEFRAGMENTATION_STATES.states)),),
)
DECISIONS = Metric(
    "matrixresource_decisions_total",
    "counter",
    "verbs",
    "Decisions of the allocator by outcome.",
    (VERB, OUTCOME, Label("reason", "reason of the refusal; empty if granted", values_max=64)),
    stability="stable",
)
SECONDS = Metric(
    "matrixresource_decision_seconds",
    "histogram",
    "seconds (wall)",
    "Duration of a verb up to its commit.",
    (VERB,),
    buckets=DECISION_SECONDS,
    stability="stable",
)
LEASES_SUSPENDED = Metric(
    "matrixresource_leases_not_judged_seconds_total",
    "counter",
    "seconds (emulated)",
    "Time in which silent agents were not counted as lost, because this process was too busy to receive reports.",
)
METRICS = (
    AGENTS, NODES, HEALTH, FREE, NPUS, SPARES, LARGEST, BLOCKS, FRAGMENTATION, USED, PLANS, DECISIONS, SECONDS,
    LEASES_SUSPENDED,
)  # fmt: skip


class ResourceMetrics:
    """`update` sets the gauges, `record_decision` counts one decision."""

    def __init__(self, registry: CollectorRegistry, store: ResourceStore, capacity: CapacityReport) -> None:
        self._store = store
        self._capacity = capacity
        self._agents, self._states, self._health = (metric.gauge(registry) for metric in (AGENTS, NODES, HEALTH))
        self._free, self._npus, self._spares = (metric.gauge(registry) for metric in (FREE, NPUS, SPARES))
        self._largest, self._blocks = LARGEST.gauge(registry), BLOCKS.gauge(registry)
        self._fragmentation, self._used, self._plans = (
            metric.gauge(registry) for metric in (FRAGMENTATION, USED, PLANS)
        )
        self._decisions, self._seconds = DECISIONS.counter(registry), SECONDS.histogram(registry)

    def record_decision(self, made: VerbOutcome) -> None:
        self._decisions.labels(*map(Label.taken, DECISIONS.labels, (made.verb, made.outcome, made.reason))).inc()
        self._seconds.labels(VERB.taken(made.verb)).observe(made.seconds)

    async def update(self) -> str:
        with self._store.reading() as session:
            agents = Tally(dict(session.execute(select(NodeRow.agent, func.count()).group_by(NodeRow.agent)).all()))
            plans = Tally(session.scalars(select(DefragmentationRow.state)))
        capacity = self._capacity.view()
        _set_gauge(self._agents, {state: agents[state] for state in AGENT_STATES})
        _set_gauge(self._plans, {state: plans[state] for state in DEFRAGMENTATION_STATES.states})
        _set_gauge(self._states, capacity.nodes_by_state)
        _set_gauge(self._health, capacity.nodes_by_health)
        _set_gauge(self._largest, capacity.largest_block)
        _set_gauge(self._fragmentation, capacity.fragmentation)
        self._free.set(capacity.nodes_free)
        self._npus.set(capacity.npus_free)
        self._spares.set(capacity.spares)
        self._blocks.clear()
        for block in capacity.blocks:
            self._blocks.labels(block.level, str(block.nodes)).set(block.count)
        self._used.clear()
        for domain in (*capacity.cabinets, *capacity.supernodes):
            self._used.labels(domain.level, domain.domain).set(domain.utilisation)
        return f"{capacity.nodes} nodes"


def _set_gauge(gauge: Gauge, values: Mapping[str, float]) -> None:
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
