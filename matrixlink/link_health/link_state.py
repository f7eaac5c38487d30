"""LinkStateTracker: the presumed condition of each link, from its port's reports, probes, and its history of flapping.

A link carries the lower of what its port reports and what probes find; a port that flaps is held down in addition
(`flap_damping.py`). All of this is in the links' rows, so it survives a restart; memory holds what every report is
compared with. Any change here changes the Fabric on which routes and promises are based.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict
from matrixcommon.model.quantities import format_duration, timestamp
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.contract.link_reports import LinkReport
from matrixlink.fabric.condition.fabric import DEGRADED, DOWN, UP, Fabric, health
from matrixlink.link_health.flap_damping import DEGRADED_PENALTY, DOWN_PENALTY, Damping
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import LinkRow

SEVERITY = {UP: 0, DEGRADED: 1, DOWN: 2}


class LinkStateTracker:
    """The verbs work inside the caller's transaction and return whether any link now carries more or less than
    before."""

    def __init__(
        self, store: LinkStore, promises: AdmissionState, clock: Clock, damping: Damping | None = None
    ) -> None:
        self.damping = damping or Damping()
        self.counters: Counter[str] = Counter()
        self._store = store
        self._promises = promises
        self._fabric: Fabric = promises.fabric
        self._clock = clock
        self._reported: dict[str, dict[str, float]] = {}
        self._faulty: dict[str, float] = {}
        self._damped: set[str] = set()
        promises.on_load.append(self._load)
        with store.reading() as session:
            self._load(session)

    def _load(self, session: Session) -> None:
        self._reported, self._damped = {}, set()
        self._faulty = self._load_faulty(session)
        for row in self._store.links(session):
            if row.reported_gbps is not None:
                self._reported.setdefault(row.node, {})[row.port] = row.reported_gbps
            if row.damped_until is not None:
                self._damped.add(row.name)

    def _load_faulty(self, session: Session) -> dict[str, float]:
        """The parts at fault according to links' rows. A part all of whose links have since been attributed to another
        part (such as a cable to a chip that failed later) is not included: if that part recovers, it has to be found
        again."""
        return {
            row.accused: row.probed_gbps / row.built_gbps
            for row in self._store.links(session)
            if row.accused is not None and row.probed_gbps is not None
        }

    # -- what is known ----------------------------------------------------------------------------------------------

    def reported_impaired(self) -> set[str]:
        """Links whose own port reports that they are below their rate."""
        return {f"{node}.{port}" for node, ports in self._reported.items() for port in ports}

    def accused(self) -> Mapping[str, float]:
        """The parts that probes found at fault, each with the share of its rate that it carries."""
        return self._faulty

    def damped_links(self) -> set[str]:
        """Links that are held down for flapping."""
        return self._damped

    # -- what changes it ----------------------------------------------------------------------------------------------

    def take(self, session: Session, report: LinkReport) -> bool:
        """Apply what a node's agent reports of its ports: those below their rate, and no others. Ports without a cable
        in the graph are ignored."""
        node, built = str(report.node), self._fabric.built
        below = {each.port: each.gbps for each in report.ports if each.gbps < built[each.port]}
        reported = {port: gbps for port, gbps in below.items() if self._fabric.has_link(node, port)}
        before = self._reported.get(node, {})
        if reported == before:
            return False
        self._promises.mark_stale()
        self._reported[node] = reported
        changed = False
        for port in sorted({*before, *reported}):
            if before.get(port) != reported.get(port):
                row = self._row(session, f"{node}.{port}")
                was = row.effective_gbps
                row.reported_gbps = reported.get(port)
                changed |= self._reconcile(session, row, was)
        return changed

    def mark_faulty(self, session: Session, part: str, links: Iterable[str], share: float, witnesses: int) -> bool:
        """Record that probes found a part at fault: its links carry that share of their rate."""
        changed = False
        self._promises.mark_stale()
        for name in links:
            row = self._row(session, name)
            was = row.effective_gbps
            if (row.accused, row.probed_gbps) == (part, share * row.built_gbps):
                continue
            row.accused, row.probed_gbps = part, share * row.built_gbps
            changed |= self._reconcile(session, row, was)
        self._faulty = self._load_faulty(session)
        if changed:
            word = "carries nothing" if share <= 0 else f"carries {share:.0%} of its rate"
            reason = "ProbeLost" if share <= 0 else "ProbeSlow"
            text = f"{part} {word}: it alone explains {witnesses} failed probes"
            self._store.record_event(session, part, reason, text, self._clock.now(), warning=True)
            self.counters[reason] += 1
        return changed

    def clear_fault(self, session: Session, part: str) -> bool:
        """Record that probes over a part pass again."""
        changed = False
        self._promises.mark_stale()
        for row in self._store.links(session):
            if row.accused == part:
                was = row.effective_gbps
                row.accused = row.probed_gbps = None
                changed |= self._reconcile(session, row, was)
        self._faulty = self._load_faulty(session)
        self._store.record_event(session, part, "ProbesPass", f"probes over {part} pass again", self._clock.now())
        return changed

    def release(self, session: Session) -> bool:
        """Release ports whose penalty has decayed."""
        now, changed = self._clock.now(), False
        for name in sorted(self._damped):
            row = self._row(session, name)
            if row.damped_until is None or row.damped_until <= now:
                changed |= self._end_damping(session, row, "it was quiet long enough")
        return changed

    def undamp(self, session: Session, name: str) -> LinkRow:
        """Release a port at once, and forget how often it went down. Raises Conflict if it is not damped."""
        self._fabric.link(name)
        row = session.get(LinkRow, name)
        if row is None or row.damped_until is None:
            raise Conflict(f"link {name} is not damped", field="name")
        self._end_damping(session, row, "somebody asked for it")
        row.penalty = 0.0
        return row

    # -- parts of it --------------------------------------------------------------------------------------------------

    def _row(self, session: Session, name: str) -> LinkRow:
        """The link's row, created if it has none."""
        found = session.get(LinkRow, name)
        return self._store.new_link(session, self._fabric.link(name)) if found is None else found

    def _reconcile(self, session: Session, row: LinkRow, was_gbps: float) -> bool:
        """Update a row and the fabric to what is known now. `was_gbps`: what was reported of it before."""
        built = row.built_gbps
        before, after = health(was_gbps, built), health(row.effective_gbps, built)
        if SEVERITY[after] > SEVERITY[before]:
            self._penalise(session, row, DOWN_PENALTY if after == DOWN else DEGRADED_PENALTY)
        changed = self._update_condition(row)
        return self._release_last_alternatives(session, row) or changed

    def _penalise(self, session: Session, row: LinkRow, by: float) -> None:
        now = self._clock.now()
        penalty = self.damping.grown(row.penalty or 0.0, now - (row.penalty_at or now), by)
        row.penalty, row.penalty_at = penalty, now
        if penalty < self.damping.suppress or not self._has_alternative(row):
            return
        hold_s = self.damping.suppressed_for_s(penalty)
        if row.damped_until is None:
            text = f"{row.name} keeps going down and is held down for {format_duration(hold_s)}"
            self._store.record_event(session, row.name, "Damped", text, now, warning=True)
            self.counters["Damped"] += 1
        row.damped_until = now + hold_s
        self._damped.add(row.name)

    def _has_alternative(self, row: LinkRow) -> bool:
        """Whether users of the port have another one that carries something and is not drained; the last one is never
        held down."""
        beside = set(self._fabric.ports.beside[row.port]) - self._fabric.drained(row.node)
        return any(self._fabric.rate(row.node, port) > 0 for port in beside)

    def _release_last_alternatives(self, session: Session, row: LinkRow) -> bool:
        """Release a damped port that has become the last one, given what is now known of it or of its alternatives.
        Return True if it carries something as a result."""
        changed = False
        if self._damped and row.gbps <= 0:
            for port in (row.port, *self._fabric.ports.beside[row.port]):
                if (name := f"{row.node}.{port}") not in self._damped:
                    continue
                current = self._row(session, name)
                if current.effective_gbps > 0 and not self._has_alternative(current):
                    changed |= self._end_damping(session, current, "nothing beside it carries anything")
        return changed

    def _end_damping(self, session: Session, row: LinkRow, why: str) -> bool:
        self._promises.mark_stale()
        now = self._clock.now()
        row.penalty = self.damping.decayed(row.penalty or 0.0, now - row.penalty_at)
        row.penalty_at, row.damped_until = now, None
        self._damped.discard(row.name)
        self._store.record_event(session, row.name, "DampingEnded", f"{row.name} is believed again: {why}", now)
        return self._update_condition(row)

    def _update_condition(self, row: LinkRow) -> bool:
        """Record the resulting condition. Return True if the link carries more or less than before."""
        current, reported, built = row.damped_until is not None, row.effective_gbps, row.built_gbps
        gbps = 0.0 if current else reported
        changed = gbps != row.gbps
        row.gbps, row.state = gbps, health(gbps, built)
        row.reason = "Damped" if current else _reason(row.reported_gbps, reported, built)
        if row.conditions or current:
            text = f"held down until {timestamp(row.damped_until)}" if row.damped_until is not None else ""
            row.set_condition("Damped", current, "Flapping" if current else "Quiet", text, self._clock.now())
        node, port = row.node, row.port
        self._fabric.set_ports(node, {**self._fabric.degraded_ports(node), port: gbps})
        return changed


def _reason(reported_gbps: float | None, effective_gbps: float, built_gbps: float) -> str:
    """Why a link carries less than it was built for; its port's own report takes precedence over what probes found."""
    if effective_gbps >= built_gbps:
        return ""
    if reported_gbps is not None and reported_gbps <= effective_gbps:
        return "PortDown" if reported_gbps <= 0 else "LanesLost"
    return "ProbeLost" if effective_gbps <= 0 else "ProbeSlow"
