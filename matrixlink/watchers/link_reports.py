"""Reads what link agents report: which programs they hold, which ports are below their rate.

Reports come in batches; each node's is taken or refused by itself. One of an earlier life of the agent, or older than
the last one taken, is refused. What was taken renews the agent's lease and writes only what changed. The answer says
all that is wished of the node: a slice the agent holds and nobody wishes for is to be cleared, and a fence falls once
it is.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from matrixlink.contract import DesiredProgram, LinkReport, LinkReportAnswer, ReportedProgram
from matrixlink.leases import Leases
from matrixlink.store import AgentRow, FenceRow, LinkRow, LinkStore, ProgramRow
from matrixlink.switchboard import Switchboard
from matrixresource.vocabulary.errors import InvalidField


class LinkReportReader:
    """Takes reports in. `ports_changed` is called after a batch in which some port changed."""

    def __init__(self, switchboard: Switchboard, leases: Leases, ports_changed: Callable[[], None]) -> None:
        self._switchboard = switchboard
        self._store: LinkStore = switchboard.store
        self._leases = leases
        self._ports_changed = ports_changed
        self._news = False
        self._rows: dict[str, LinkRow] = {}

    def take(self, reports: list[LinkReport]) -> list[LinkReportAnswer]:
        """An answer per report, in their order."""
        nodes = [str(report.node) for report in reports]
        self._news = False
        with self._switchboard.promises.changing() as session:
            programs = self._store.programs_by_node(session, nodes)
            fences = self._store.fences_by_node(session, nodes)
            touched: set[str] = set()
            agents = self._store.agents(session, nodes)
            self._rows = self._store.links_named(session, self._changed_links(reports))
            taken = [self._take(session, report, agents, programs, fences, touched) for report in reports]
            for slice, generation in self._ahead(reports, taken, programs).items():
                self._switchboard.outrun(session, slice, generation)
                touched.add(slice)
            session.flush()
            self._switchboard.settle(session, touched)
            answers = [
                self._answer(session, report, reason, programs) for report, reason in zip(reports, taken, strict=True)
            ]
        if self._news:
            self._ports_changed()
        return answers

    def _take(
        self,
        session: Session,
        report: LinkReport,
        agents: dict[str, AgentRow],
        programs: dict[str, list[ProgramRow]],
        fences: dict[str, list[FenceRow]],
        touched: set[str],
    ) -> tuple[str, str] | None:
        """Take one report in; a reason and a sentence where it is refused."""
        node = str(report.node)
        fabric = self._switchboard.fabric
        if not fabric.has(node):
            return "NotFound", f"there is no node {node}"
        agent = agents.get(node)
        if not self._leases.newer(node, report.epoch, report.sequence, agent.epoch if agent else -1):
            return "StaleReport", f"epoch {report.epoch}, sequence {report.sequence} is not newer than what was taken"
        try:
            for at, port in enumerate(report.ports):
                fabric.check_port(port.port, port.gbps, f"ports[{at}]")
        except InvalidField as wrong:
            return wrong.reason, f"{wrong.field}: {wrong.message}"
        if agent is None:
            agents[node] = AgentRow(node=node, epoch=report.epoch)
            session.add(agents[node])
        elif agent.epoch != report.epoch:
            agent.epoch = report.epoch
        self._leases.renew(node, report.lease_seconds, report.epoch, report.sequence)
        self._take_ports(session, node, {port.port: port.gbps for port in report.ports})
        said = {program.slice: program for program in report.programs}
        for row in programs[node]:
            if _follow(row, said.get(row.slice)):
                touched.add(row.slice)
        for fence in fences.get(node, ()):
            if _is_clear(fence, said.get(fence.slice)):
                session.delete(fence)
        return None

    def _changed_links(self, reports: list[LinkReport]) -> set[str]:
        """The links of which some report says otherwise than we know."""
        changed = set()
        for report in reports:
            before = self._switchboard.fabric.below(str(report.node))
            said = {port.port: port.gbps for port in report.ports}
            if said != before:
                ports = {port for port in {*said, *before} if said.get(port) != before.get(port)}
                changed |= {f"{report.node}.{port}" for port in ports}
        return changed

    def _take_ports(self, session: Session, node: str, ports: dict[str, float]) -> None:
        fabric = self._switchboard.fabric
        before = dict(fabric.below(node))
        if before == ports:
            return
        self._switchboard.promises.mark_stale()
        if not fabric.set_ports(node, ports):
            return
        after = fabric.below(node)
        for port in {*before, *after}:
            if before.get(port) != after.get(port):
                self._store.set_port(session, fabric.link(f"{node}.{port}"), fabric.rate(node, port), self._rows)
        self._news = True

    @staticmethod
    def _ahead(
        reports: list[LinkReport], refused: list[tuple[str, str] | None], programs: dict[str, list[ProgramRow]]
    ) -> dict[str, int]:
        """Slices of which some agent holds a generation newer than what it was asked for, and the newest of those."""
        found: dict[str, int] = {}
        for report, refusal in zip(reports, refused, strict=True):
            wished = {row.slice: row.generation for row in programs[str(report.node)]} if refusal is None else {}
            for said in report.programs:
                if said.generation > wished.get(said.slice, said.generation):
                    found[said.slice] = max(found.get(said.slice, 0), said.generation)
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
        said = {program.slice: program for program in report.programs}
        rows = [row for row in programs[str(report.node)] if row in session]
        desired = [row.desired(whole=not _holds(row, said.get(row.slice))) for row in rows]
        wished = {row.slice for row in rows}
        desired += [
            DesiredProgram(slice=program.slice, generation=program.generation, action="clear")
            for program in report.programs
            if program.slice not in wished and program.status != "Cleared"
        ]
        return LinkReportAnswer(node=report.node, accepted=True, desired=desired)


def _follow(row: ProgramRow, said: ReportedProgram | None) -> bool:
    """Bring a program's state to what its agent says. True when it changed; a row that did not is left untouched."""
    before = state, acknowledged, message = row.state, row.acknowledged, row.message
    if row.action == "clear":
        if said is not None and said.status == "Cleared" and said.generation >= row.generation:
            state = "Cleared"
    elif said is not None and said.generation == row.generation and said.status in ("Programmed", "Failed"):
        state, message = said.status, said.message
    elif row.state != "Pending":
        state, message = "Pending", ""
    if said is not None and said.status == "Programmed":
        acknowledged = said.generation
    if (state, acknowledged, message) == before:
        return False
    row.state, row.acknowledged, row.message = state, acknowledged, message
    return True


def _holds(row: ProgramRow, said: ReportedProgram | None) -> bool:
    """Whether the agent knows this generation already, so that it need not be told again."""
    return said is not None and said.generation == row.generation and (row.action == "clear") == (
        said.status == "Cleared"
    )  # fmt: skip


def _is_clear(fence: FenceRow, said: ReportedProgram | None) -> bool:
    return said is None or said.status == "Cleared" or said.generation > fence.generation
