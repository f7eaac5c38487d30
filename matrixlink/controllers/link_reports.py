"""Processes the reports of link agents: the programs they hold, what they read back of them, ports below their rate,
and failed probes.

Reports come in batches; each node's is accepted or refused on its own. A report from before the agent's last restart,
or older than the newest one accepted, is refused. An accepted report renews the agent's lease, and only what changed is
written. The answer has everything that is requested of the node: a slice that the agent holds without a request is to
be cleared, a table that differs from the request (by its digest) is to be written again, and a fence is lifted once a
slice is gone.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.transaction import restore_entry
from matrixcommon.telemetry.trace import record_span
from matrixlink.contract.link_reports import LinkReport, LinkReportAnswer, ReportedProgram
from matrixlink.contract.programs import DesiredProgram
from matrixlink.controllers.agent_leases import Leases
from matrixlink.link_health.fault_localisation import ROUNDS_AHEAD_MAX, FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.model.program_digest import digest
from matrixlink.probing.plan import ROUND_S
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import TRACES, AgentRow, FenceRow, ProgramRow
from matrixlink.telemetry.rates import PortRates
from matrixresource.topology import Supernode

log = logging.getLogger(__name__)


@dataclass
class LinkReportBatch:
    """What reports taken together have brought: slices to settle, and whether some link carries more or less."""

    touched: set[str] = field(default_factory=set)
    news: bool = False


@dataclass(frozen=True)
class KnownProgram:
    """What is remembered of a program from one report to the next: its body, the digest of that, and how often its
    agent found the table otherwise, where it holds one."""

    body: dict[str, Any]
    digest: str
    drifts: int | None = None


class LinkReportProcessor:
    """Takes reports in. `nudge` is called after a batch in which some link changed or some probe went wrong."""

    def __init__(
        self,
        slice_controller: SliceController,
        leases: Leases,
        conditions: LinkStateTracker,
        diagnosis: FaultLocaliser,
        rates: PortRates,
        clock: Clock,
        nudge: Callable[[], None],
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._slice_controller = slice_controller
        self._store: LinkStore = slice_controller.store
        self._leases = leases
        self._conditions = conditions
        self._diagnosis = diagnosis
        self._rates = rates
        self._clock = clock
        self._nudge = nudge
        self._programs: dict[str, dict[str, KnownProgram]] = {}
        """By node and slice; of what its agent is asked to hold, and of nothing else."""

    def take(self, reports: list[LinkReport]) -> list[LinkReportAnswer]:
        """An answer per report, in their order. What else they bring is passed on once they are durable."""
        nodes = [str(report.node) for report in reports]
        batch = LinkReportBatch()
        with self._slice_controller.promises.transaction() as session:
            programs = self._store.programs_by_node(session, nodes)
            fences = self._store.fences_by_node(session, nodes)
            agents = self._store.agents(session, nodes)
            taken = [self._take(session, report, agents, programs, fences, batch) for report in reports]
            for slice, generation in self._ahead(reports, taken, programs).items():
                self._slice_controller.supersede_generation(session, slice, generation)
                batch.touched.add(slice)
            if batch.touched:
                self._slice_controller.reconcile(session, batch.touched)
            answers = [
                self._answer(session, report, reason, programs) for report, reason in zip(reports, taken, strict=True)
            ]
        accepted = [report for report, reason in zip(reports, taken, strict=True) if reason is None]
        self._store.records.on_commit(lambda: self._publish(accepted, batch.news))
        return answers

    def _publish(self, reports: list[LinkReport], news: bool) -> None:
        heard = [self._diagnosis.record_results(report) for report in reports]
        for report in reports:
            self._rates.record_counters(report)
        if news or any(heard):
            self._nudge()

    def _take(
        self,
        session: Session,
        report: LinkReport,
        agents: dict[str, AgentRow],
        programs: dict[str, list[ProgramRow]],
        fences: dict[str, list[FenceRow]],
        batch: LinkReportBatch,
    ) -> tuple[str, str] | None:
        """Take one report in; a reason and a sentence where it is refused."""
        node = str(report.node)
        fabric = self._slice_controller.fabric
        if not fabric.has(node) and not self._discover_supernode(report.node):
            return "NotFound", f"there is no node {node}"
        agent = agents.get(node)
        if not self._leases.is_newer(node, report.epoch, report.sequence, agent.epoch if agent else -1):
            return "StaleReport", f"epoch {report.epoch}, sequence {report.sequence} is not newer than what was taken"
        try:
            for at, port in enumerate(report.ports):
                fabric.check_port(port.port, port.gbps, f"ports[{at}]")
            self._check_times(report)
        except InvalidField as wrong:
            return wrong.reason, f"{wrong.field}: {wrong.message}"
        if agent is None:
            agents[node] = AgentRow(node=node, epoch=report.epoch)
            session.add(agents[node])
        elif agent.epoch != report.epoch:
            agent.epoch = report.epoch
        undo = self._leases.renew(node, report.lease_seconds, report.epoch, report.sequence)
        self._store.records.on_rollback(undo)
        batch.news |= self._conditions.take(session, report)
        reported = {program.slice: program for program in report.programs}
        before = self._remember(node, programs[node], reported)
        for row in programs[node]:
            self._check_drift(session, row, reported.get(row.slice), before.get(row.slice))
            if self._follow(row, reported.get(row.slice)):
                batch.touched.add(row.slice)
        for fence in fences.get(node, ()):
            if _is_clear(fence, reported.get(fence.slice)):
                session.delete(fence)
        return None

    def _check_times(self, report: LinkReport) -> None:
        """Rounds are numbered and counters read by emulated time: what is from the future would be the newest for
        ever, and some of it no timestamp can name."""
        now = self._clock.now()
        newest = int(now / ROUND_S) + ROUNDS_AHEAD_MAX
        if report.probes is not None and report.probes.round > newest:
            raise InvalidField(f"{report.probes.round} lies ahead; the newest may be {newest}", field="probes.round")
        latest = now + ROUNDS_AHEAD_MAX * ROUND_S
        if report.counters is not None and not 0 <= report.counters.at <= latest:
            text = f"{report.counters.at:g} is no moment that has been; the latest may be {latest:.0f}"
            raise InvalidField(text, field="counters.at")

    def _discover_supernode(self, node: NodeName) -> bool:
        """Take up the supernode that a node never heard of stands in: it is there, as its agent speaks. Whoever reads
        the tables next finds it by the agent's row."""
        fabric = self._slice_controller.fabric
        if node.supernode in fabric.supernodes or node not in Supernode(node.supernode, fabric.spec).nodes():
            return False
        fabric.ensure_supernode(node.supernode)
        log.info("supernode found", extra={"supernode": node.supernode, "by": node})
        return True

    # -- drift -------------------------------------------------------------------------------------------------------

    def _remember(
        self, node: str, rows: list[ProgramRow], reported: Mapping[str, ReportedProgram]
    ) -> dict[str, KnownProgram]:
        """Know the programs that the node is asked to hold, and no others; returns what was known before."""
        before = self._programs.get(node, {})
        known = {row.slice: _known_program(row, reported.get(row.slice), before.get(row.slice)) for row in rows}
        if known != before:
            self._store.records.on_rollback(restore_entry(self._programs, node))
            self._programs[node] = known
        return before

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._programs.pop(node, None)

    def _check_drift(
        self, session: Session, row: ProgramRow, reported: ReportedProgram | None, before: KnownProgram | None
    ) -> None:
        """Tell of tables that were otherwise than requested: those the agent found and wrote again by itself, and those
        only the digest gives away."""
        if reported is None:
            return
        reported_before = None if before is None else before.drifts
        strange = self._has_drifted(row, reported)
        # What an agent found before it was first heard, by this process, was told of before.
        if strange or (reported_before is not None and reported.drifts > reported_before):
            self.counters["drifts"] += 1
            who = "its digest is not that of the spec" if strange else "its agent read it back"
            text = f"the table of {row.slice} on {row.node} was not what was programmed: {who}; it is written again"
            self._store.record_event(
                session, row.slice, "TablesDrifted", text, self._clock.now(), warning=True, project=row.project
            )

    def _has_drifted(self, row: ProgramRow, reported: ReportedProgram | None) -> bool:
        """Whether the agent holds the desired generation by name, but not by what is in the table."""
        return (
            reported is not None and reported.digest is not None and row.action == "program"
            and reported.status == "Programmed" and reported.generation == row.generation
            and reported.digest != self._programs[row.node][row.slice].digest
        )  # fmt: skip

    @staticmethod
    def _ahead(
        reports: list[LinkReport], refused: list[tuple[str, str] | None], programs: dict[str, list[ProgramRow]]
    ) -> dict[str, int]:
        """Slices of which some agent holds a generation newer than what it was asked for, and the newest of those."""
        found: dict[str, int] = {}
        for report, refusal in zip(reports, refused, strict=True):
            desired = {row.slice: row.generation for row in programs[str(report.node)]} if refusal is None else {}
            for reported in report.programs:
                if reported.generation > desired.get(reported.slice, reported.generation):
                    found[reported.slice] = max(found.get(reported.slice, 0), reported.generation)
        return found

    def _answer(
        self,
        session: Session,
        report: LinkReport,
        refused: tuple[str, str] | None,
        programs: dict[str, list[ProgramRow]],
    ) -> LinkReportAnswer:
        if refused:
            return LinkReportAnswer(node=report.node, accepted=False, reason=refused[0], message=refused[1])
        reported = {program.slice: program for program in report.programs}
        rows = [row for row in programs[str(report.node)] if session.get(ProgramRow, row.name) is row]
        desired = [self._desired_program(row, reported.get(row.slice)) for row in rows]
        spec = {row.slice for row in rows}
        desired += [
            DesiredProgram(slice=program.slice, generation=program.generation, action="clear")
            for program in report.programs
            if program.slice not in spec and program.status != "Cleared"
        ]
        return LinkReportAnswer(node=report.node, accepted=True, desired=desired)

    def _desired_program(self, row: ProgramRow, reported: ReportedProgram | None) -> DesiredProgram:
        again = self._has_drifted(row, reported)
        request = row.desired(whole=again or not _acknowledges(row, reported))
        request.again = again
        return request

    def _follow(self, row: ProgramRow, reported: ReportedProgram | None) -> bool:
        """Bring a program's state to what its agent says. True when it changed; a row that did not is left
        untouched."""
        before = state, acknowledged, message = row.state, row.acknowledged, row.message
        strange = self._has_drifted(row, reported)
        if row.action == "clear":
            if reported is not None and reported.status == "Cleared" and reported.generation >= row.generation:
                state = "Cleared"
        elif strange:
            state, message = "Pending", "the table read back is not what was programmed"
        elif (
            reported is not None
            and reported.generation == row.generation
            and reported.status in ("Programmed", "Failed")
        ):
            state, message = reported.status, reported.message
        elif row.state != "Pending":
            state, message = "Pending", ""
        if reported is not None and reported.status == "Programmed" and not strange:
            acknowledged = reported.generation
        if (state, acknowledged, message) == before:
            return False
        row.state, row.acknowledged, row.message = state, acknowledged, message
        if state in ("Programmed", "Failed"):
            parent = TRACES.get(f"{row.slice}@{row.generation}")
            record_span(parent, "programmed", time.time_ns(), node=row.node, slice=row.slice, state=state)
        return True


def _known_program(row: ProgramRow, reported: ReportedProgram | None, before: KnownProgram | None) -> KnownProgram:
    drifts = None if reported is None else reported.drifts
    if before is not None and before.body is row.body:
        return before if before.drifts == drifts else replace(before, drifts=drifts)
    return KnownProgram(row.body, digest(row.view().model_dump(mode="json")), drifts)


def _acknowledges(row: ProgramRow, reported: ReportedProgram | None) -> bool:
    """Whether the agent knows this generation already, so that it need not be reported again."""
    return reported is not None and reported.generation == row.generation and (row.action == "clear") == (
        reported.status == "Cleared"
    )  # fmt: skip


def _is_clear(fence: FenceRow, reported: ReportedProgram | None) -> bool:
    """Whether the agent has let go of it. One that is at work on a newer generation still forwards by the old one."""
    if reported is None or reported.status == "Cleared":
        return True
    return reported.status == "Programmed" and reported.generation > fence.generation
