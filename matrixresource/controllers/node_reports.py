"""Processes the reports of resource agents.

Reports come in batches; each node's is accepted or refused on its own. A report from before the agent's last restart,
or older than the newest one accepted, is refused: acting on outdated reports has broken real fabrics. Each accepted
report renews the node's lease (`leases`), and only what changed is written to the database.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock, Seconds, resolve_seconds
from matrixcommon.model.hardware_names import NpuName
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.persistence.table_cache import rows_where
from matrixcommon.telemetry.trace import record_span
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.contract.agents import NodeReport, ReportAnswer
from matrixresource.contract.nodes import IN_PLACE, RECOVERY, FaultView
from matrixresource.controllers.steady_reports import SteadyReports
from matrixresource.nodes.fault_levels import unreported_health, worst_health
from matrixresource.nodes.fault_rules import dies_of, whole_node_fault
from matrixresource.nodes.flap_rules import flap_rules
from matrixresource.nodes.states import AVAILABLE, MANAGEABLE, QUARANTINED, SERVICING, STAGE_FAILED, STAGE_TOLERATED
from matrixresource.store import node_inventories
from matrixresource.store.agent_leases import AGENT_SEVERITY, Lease, Leases
from matrixresource.store.allocation_tables import TRACES, AssignmentRow
from matrixresource.store.fault_history import FaultRecords
from matrixresource.store.node_events import record_node_event
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, PartitionRow
from matrixresource.store.topology_versions import spec_at
from matrixresource.supernodes.topology_manager import TopologyManager

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportBatch:
    """What a batch of reports needs from the database, read once, and the results of processing it."""

    session: Session
    records: FaultRecords
    inventoried: set[str]
    steady: set[str]
    """Nodes whose report contains nothing new."""
    leases: dict[str, Lease] = field(default_factory=dict)
    """By node, from the reports that were accepted."""
    changed_nodes: set[str] = field(default_factory=set)
    """Nodes that a report has changed."""
    repeatable: list[tuple[NodeRow, int, NodeReport]] = field(default_factory=list)
    """(row, its version before, report) for reports that were judged by nothing but the row and the report."""


@dataclass
class ChangedNodes:
    """Nodes that changed, and the allocations that hold them or parts of them."""

    nodes: list[NodeRow] = field(default_factory=list)
    allocations: set[str] = field(default_factory=set)

    def add(self, node: NodeRow, released: Collection[str] = ()) -> None:
        """`released`: allocations whose part of this node has just been wiped."""
        self.nodes.append(node)
        self.allocations.update(node.reported_partitions or {}, released)
        if node.holder is not None:
            self.allocations.add(node.holder)


class NodeReportProcessor:
    """Processes reports, and derives from missing ones which agents are Stale or Lost."""

    def __init__(
        self,
        store: ResourceStore,
        allocator: Allocator,
        topology_manager: TopologyManager,
        clock: Clock,
        *,
        grace_s: Seconds,
        nudge: Callable[[], None],
        watch_period_s: Seconds = math.inf,
    ) -> None:
        """`grace_s`: how long after this process started an agent that has not reported yet is not considered silent.
        `watch_period_s`: how often leases are checked; if a check is late, this process was too busy to receive
        reports."""
        self._store = store
        self._allocator = allocator
        self._topology_manager = topology_manager
        self._lifecycle = NodeLifecycle(store, allocator, clock)
        self._clock = clock
        self._grace_s = grace_s
        self._started_at = clock.now()
        self._leases = Leases(store.records)
        self._steady = SteadyReports(store.records)
        self._pauses = ProcessPauses(clock, watch_period_s)
        self._nudge = nudge

    @property
    def suspended_s(self) -> float:
        """The total time for which leases were not enforced because this process was behind; emulated seconds."""
        return self._pauses.total_s

    def process(self, reports: list[NodeReport]) -> list[ReportAnswer]:
        """One answer per report, in the same order."""
        with self._store.transaction() as session:
            changes = ChangedNodes()
            names = [report.node for report in reports]
            self._leases.load(session, names)
            rows = {node.name: node for node in self._store.nodes(session, names)}
            unique = len({*names}) == len(names)  # with two reports of one node, only the second may be the known one
            steady = self._steady.repeated_nodes(reports, rows) if unique else set()
            others = [name for name in names if name not in steady]
            batch = ReportBatch(
                session, FaultRecords(session, others), node_inventories.nodes_with_inventory(session, others), steady
            )
            answers = [self._process_report(batch, rows.get(report.node), report, changes) for report in reports]
            self._leases.record_heartbeats(session, batch.leases, batch.changed_nodes)
            self._reconcile(session, changes)
        self._steady.add(batch.repeatable)  # the transaction's changes have their version numbers now
        return answers

    def _process_report(
        self, batch: ReportBatch, node: NodeRow | None, report: NodeReport, changes: ChangedNodes
    ) -> ReportAnswer:
        if node is None:
            return ReportAnswer(node=report.node, accepted=False, reason="NotFound")
        lease = batch.leases.get(node.name)
        newest = lease.newest_report if lease else self._leases.newest_report(node.name) or (node.epoch, -1)
        if (report.epoch, report.sequence) <= newest:
            return ReportAnswer(node=report.node, accepted=False, reason="StaleReport")
        now = self._clock.now()
        batch.leases[node.name] = Lease(now, report.lease_s, report.epoch, report.sequence)
        if node.name in batch.steady:
            return ReportAnswer(node=report.node, accepted=True)
        version = node.version
        answer = self._apply_report(batch, node, report, changes, now)
        complete = report.inventory is None and report.ports is None and answer.desired is None
        if complete and not answer.inventory_wanted and not batch.records.has_records(node.name):
            batch.repeatable.append((node, version, report))
        return answer

    def _apply_report(
        self, batch: ReportBatch, node: NodeRow, report: NodeReport, changes: ChangedNodes, now: float
    ) -> ReportAnswer:
        """Process a report that may contain something new."""
        before, was_ready = _fault_summary(node), node.ready
        if node.agent == "Lost" and node.status is not None:
            record_node_event(batch.session, node.name, "AgentConnected", "its agent reports again", now)
        _write_changed(
            node,
            agent="Connected",
            heard_at=None,
            lost_at=None,
            epoch=report.epoch,
            power=report.power,
            status=report.status,
            stage=report.stage,
            message=report.message,
            observed_generation=report.generation,
        )
        parts: dict[str, str] = {part.allocation: part.status for part in report.parts}
        released = (node.reported_partitions or {}).keys() - parts.keys()
        if parts != (node.reported_partitions or {}):
            node.reported_partitions = parts
        healthy = node.health != "Unhealthy"
        _write_faults(node, batch.records.observe(node, report.faults, now))
        if healthy and node.health == "Unhealthy":
            _raise_flap_score(node, "Unhealthy", now)
        if report.inventory is not None:
            spec = spec_at(batch.session, node.supernode)
            node_inventories.record_inventory(batch.session, node, report.inventory, spec, now)
        if report.ports:
            self._topology_manager.observe(batch.session, node.name, report.ports)
        self._update_state(batch.session, node)
        if node.ready and not was_ready and node.holder:
            record_span(TRACES.get(node.holder), "acknowledged", time.time_ns(), node=node.name, state=node.state)
        changed = _fault_summary(node) != before
        if changed:
            changes.add(node, released)
        if changed or batch.session.is_modified(node):
            batch.changed_nodes.add(node.name)
        behind = node.assignment_generation > report.generation
        row = batch.session.get(AssignmentRow, node.name) if behind else None
        return ReportAnswer(
            node=report.node,
            accepted=True,
            inventory_wanted=report.inventory is None and node.name not in batch.inventoried,
            desired=row.view() if row else None,
        )

    def _update_state(self, session: Session, node: NodeRow) -> None:
        """Update the node's state from this report and apply rules: a failed check, or one that is due."""
        before = node.state
        if node.task is not None and node.in_sync and node.status == "Clean":
            if node.task == "verify" and whole_node_fault(node) is None:
                node.cordon(RECOVERY, False)
            node.task, node.state_reason, node.state_message = None, None, ""
        if node.task in IN_PLACE and node.ready:
            node.task = None
        if node.status == "Failed" and node.in_sync and node.desired_state in (AVAILABLE, MANAGEABLE):
            if self._lifecycle.handle_stage_failure(session, node, f"{node.stage}: {node.message}"):
                _raise_flap_score(node, STAGE_FAILED, self._clock.now())
        elif node.status == "Failed" and node.in_sync:
            node.task = None
            failed = f"{node.stage}: {node.message}"[:400]
            if node.desired_state == SERVICING and (node.state_reason, node.state_message) != (STAGE_FAILED, failed):
                node.state_reason, node.state_message = STAGE_FAILED, failed
                record_node_event(session, node.name, STAGE_FAILED, failed, self._clock.now(), warning=True)
        elif node.state_reason == STAGE_TOLERATED and node.ready:
            node.state_reason, node.state_message = None, ""
        node.read_state()
        returned = before == QUARANTINED != node.state and node.desired_state == AVAILABLE
        if returned and node.task is None and not node.allocated:
            self._lifecycle.verify(session, node, "it is back after it was lost or unhealthy")
        if RECOVERY in (node.cordoned_by or ()):
            self._lift_recovery_cordon(session, node)

    def _lift_recovery_cordon(self, session: Session, node: NodeRow) -> None:
        """Lift recovery's cordon from a node that reports. If the node is held, its holder sees it work and the report
        is the check; a free node is verified first. Dies that are still faulty stay unavailable in any case."""
        if node.allocated and node.health != "Unhealthy" and node.state != QUARANTINED:
            node.cordon(RECOVERY, False)
        elif node.state == AVAILABLE and node.task is None and whole_node_fault(node) is None:
            self._lifecycle.verify(session, node, "recovery suspected it when other nodes failed")

    def release(self, npu: NpuName) -> NodeRow:
        """Release this NPU or its dies from separation by the frequency rule, after an administrator has looked at
        it."""
        changes = ChangedNodes()
        with self._store.transaction() as session:
            node = self._store.node(session, npu.node)
            dies = dies_of(npu.removeprefix(f"{npu.node}-"))
            before = _fault_summary(node)
            _write_faults(node, FaultRecords(session, [node.name]).release(node, dies))
            node.read_state()
            if _fault_summary(node) != before:
                changes.add(node)
            self._reconcile(session, changes)
        return node

    async def watch_leases(self) -> str:
        """Mark agents whose leases have expired. Runs periodically."""
        now = self._clock.now()
        late_s = self._pauses.record_beat()
        if self._pauses.stalled:
            log.warning("running late: agents are not considered silent", extra={"late_s": round(late_s, 1)})
        changes = ChangedNodes()
        with self._store.transaction() as session:
            self._leases.load(session)
            self._leases.extend_all(late_s, now)  # what was recorded before or meanwhile is known by now
            nodes = self._store.nodes(session)
            for node in nodes:
                agent = self._leases.agent_state(
                    node.name, now, new=now - self._started_at < resolve_seconds(self._grace_s)
                )
                # Only for the worse: recovery is detected from a report, by whichever replica receives it.
                if agent is not None and AGENT_SEVERITY[agent] > AGENT_SEVERITY[node.agent]:
                    node.agent = agent
                    node.heard_at = self._leases.heard_at(node.name)
                    if agent == "Lost":
                        if node.status is not None:
                            record_node_event(session, node.name, "AgentLost", _silence(node, now), now, warning=True)
                        node.lost_at = now
                        node.power, node.health = "Unknown", unreported_health(node.health)
                    node.read_state()
                    changes.add(node)
            _count_losses(nodes, changes.nodes, now)
            self._reconcile(session, changes)
        return f"{len(changes.nodes)} agents changed"

    def _reconcile(self, session: Session, changes: ChangedNodes) -> None:
        shared = [node.name for node in changes.nodes if node.shared_by]
        parts = {part.allocation for part in rows_where(session, PartitionRow, "node", *shared)}
        self._allocator.reconcile(session, changes.allocations | parts)
        if any(node.holder is None for node in changes.nodes):
            self._nudge()


def _silence(node: NodeRow, now: float) -> str:
    """How long its agent has been silent, for everybody: without the name of its holder."""
    return "its agent has not reported" + (f" for {now - node.heard_at:.0f} s" if node.heard_at is not None else "")


def _write_faults(node: NodeRow, faults: list[FaultView]) -> None:
    shown = [fault.wire() for fault in faults]
    if shown != (node.faults or []):
        node.faults = shown
    _write_changed(node, health=worst_health(fault.level for fault in faults))


def _write_changed(node: NodeRow, **fields: object) -> None:
    """Set only fields that differ: nearly every report repeats what is known, and the ORM's bookkeeping is the larger
    cost."""
    for name, value in fields.items():
        if getattr(node, name) != value:
            setattr(node, name, value)


def _raise_flap_score(node: NodeRow, reason: str, now: float) -> None:
    """Raise the node's flap score."""
    node.flap_score = flap_rules().raised_score(node.flap_score or 0.0, node.flapped_at, now, reason)
    node.flapped_at = now


def _count_losses(nodes: Iterable[NodeRow], changed: Iterable[NodeRow], now: float) -> None:
    """Raise the scores of lost nodes, except in supernodes where so many are silent that the cause must be shared."""
    silent = Counter(node.supernode for node in nodes if node.agent != "Connected" and node.status)
    for node in changed:
        if node.agent == "Lost" and node.status is not None and silent[node.supernode] <= flap_rules().together_max:
            _raise_flap_score(node, "AgentLost", now)


def _fault_summary(node: NodeRow) -> tuple[object, ...]:
    """The properties of a node that an allocation's state depends on."""
    return (
        node.state,
        node.agent,
        node.health,
        node.ready,
        node.stage,
        node.in_sync,
        node.reported_partitions,
        node.faults,
        node.conditions,
    )
