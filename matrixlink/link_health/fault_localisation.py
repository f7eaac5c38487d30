"""FaultLocaliser: derives from agents' probe reports which link or switch is at fault, and when it no longer is.

The newest rounds are kept in memory only; findings are in the links' rows. A part is found at fault when two rounds in
a row point at it and nothing else would explain them, and cleared when in two rounds some probe over it came through at
full rate. A round is evaluated once half of the active nodes have reported on it: a node whose clock is ahead is alone
in its rounds until the others get there. So a silent fault, and its repair, is found within `DETECTED_WITHIN_S` of
emulated time; or, when emulated time runs so fast that a round takes longer, within 3.5 rounds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from matrixcommon.model.clock import Clock
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.contract.link_reports import LinkReport
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.probing.plan import LINK_COLUMNS, ROUND_FLOOR_WALL_S, ROUND_S, Parts, ProbePlan, probe_plan
from matrixlink.probing.tomography import PASS_SHARE, LocalisationResult, ProbeOutcomes, confirmed_suspicions, localise

ROUNDS_EVALUATED = 4
ROUNDS_AHEAD_MAX = 6
"""A minute: the furthest that an agent's clock may be ahead of the service's."""
ACTIVE_WITHIN_ROUNDS = 2.5
"""Nodes that have sent no probes for longer are not waited for."""
DETECTED_WITHIN_ROUNDS = 3.5
"""The rest of the round in which it fails, two whole rounds, and their reports."""
DETECTED_WITHIN_S = DETECTED_WITHIN_ROUNDS * ROUND_S


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """One node's round: the failed probes by number, and its own ports that it reported below their rate."""

    sent: int
    failed: dict[int, float]
    impaired_ports: frozenset[str]


@dataclass(frozen=True, slots=True)
class SuspectedParts:
    """What the newest round points at: any of `parts`, by name, would explain that many failed probes."""

    parts: tuple[str, ...]
    share: float
    witnesses: int


@dataclass
class ProbeHistory:
    """What was reported on one supernode, round by round, and the conclusions."""

    plan: ProbePlan
    heard: dict[int, dict[str, ProbeResults]] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    """By node, when it last reported on any round."""

    def newest(self) -> list[int]:
        return sorted(self.heard, reverse=True)

    def judged(self, since: float) -> list[int]:
        """The newest rounds on which half of the nodes active since then have reported."""
        speaking = sum(at >= since for at in self.heard_at.values())
        return [number for number in self.newest() if 2 * len(self.heard[number]) >= speaking][:ROUNDS_EVALUATED]


class FaultLocaliser:
    """`record_results` is called for every accepted report, `evaluate` by the watcher."""

    def __init__(self, fabric: Fabric, promises: AdmissionState, conditions: LinkStateTracker, clock: Clock) -> None:
        self._clock = clock
        self._promises = promises
        self._conditions = conditions
        self._fabric = fabric
        self._histories: dict[str, ProbeHistory] = {}
        self._suspicions: dict[str, tuple[SuspectedParts, ...]] = {}
        self._news = False
        self.latency_us: dict[str, dict[str, float]] = {}
        """By node and plane, the mean of its newest round."""
        self.sent = self.failed = 0

    @property
    def detected_within_s(self) -> float:
        """Emulated seconds, at the present speed."""
        return DETECTED_WITHIN_ROUNDS * self._round_s

    @property
    def _round_s(self) -> float:
        return self._clock.at_least_wall(ROUND_S, ROUND_FLOOR_WALL_S)

    def record_results(self, report: LinkReport) -> bool:
        """Store the probe results of a report. Return True if there is something to evaluate."""
        reported = report.probes
        if reported is None:
            return False
        node, rounds = str(report.node), self._history_of(self._fabric.supernode_name(report.node))
        heard = rounds.heard.setdefault(reported.round, {})
        if node not in heard:
            self.sent, self.failed = self.sent + reported.sent, self.failed + len(reported.failed)
        blind = frozenset(port.port for port in report.ports)
        if node in heard:  # its port may have recovered since the probes were sent
            blind |= heard[node].impaired_ports
        heard[node] = ProbeResults(reported.sent, {each.probe: each.share for each in reported.failed}, blind)
        rounds.heard_at[node] = self._clock.now()
        for old in rounds.newest()[ROUNDS_EVALUATED + ROUNDS_AHEAD_MAX :]:
            del rounds.heard[old]
        self.latency_us[node] = {str(plane): us for plane, us in reported.latency_us.items()}
        if reported.failed or self._conditions.accused() or self._suspicions:
            self._news = True
        return self._news

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self.latency_us.pop(node, None)

    def _history_of(self, supernode: str) -> ProbeHistory:
        """The history of a supernode, created when it is discovered and reset when its graph changes."""
        plan = probe_plan(self._fabric.supernodes[supernode])
        if supernode not in self._histories or self._histories[supernode].plan is not plan:
            self._histories[supernode] = ProbeHistory(plan)
        return self._histories[supernode]

    def evaluate(self) -> list[str]:
        """Draw conclusions from what was reported since the last call. Return the parts found at fault or cleared."""
        if not self._news:
            return []
        self._news = False
        changed = []
        for name in [name for name in self._histories if name not in self._fabric.supernodes]:
            del self._histories[name]
            self._suspicions.pop(name, None)
        for name, rounds in self._histories.items():
            changed += self._evaluate(name, rounds)
        return changed

    def _evaluate(self, name: str, rounds: ProbeHistory) -> list[str]:
        plan = rounds.plan
        since = self._clock.now() - ACTIVE_WITHIN_ROUNDS * self._round_s
        seen = [self._outcomes(rounds, number) for number in rounds.judged(since)]
        localised = [localise(outcomes) for outcomes in seen]
        found = {plan.names[each.part]: each for each in confirmed_suspicions(localised)}
        self._note(name, plan, localised)
        accused = {part: share for part, share in self._conditions.accused().items() if plan.supernode.owns(part)}
        passed = [
            part
            for part in accused
            if part not in found and (part not in plan.number or _is_cleared(plan.number[part], seen))
        ]
        due = {
            part: each
            for part, each in found.items()
            if plan.links_of(part) and abs(accused.get(part, 1.0) - each.share) > 1e-6
        }
        if not passed and not due:
            return []
        with self._promises.transaction() as session:
            for part, each in due.items():
                self._conditions.mark_faulty(session, part, plan.links_of(part), each.share, each.witnesses)
            for part in passed:
                self._conditions.clear_fault(session, part)
        return [*due, *passed]

    def _note(self, name: str, plan: ProbePlan, localised: list[LocalisationResult]) -> None:
        self._suspicions.pop(name, None)
        if localised and localised[0].suspicions:
            self._suspicions[name] = tuple(
                SuspectedParts(tuple(plan.names[part] for part in sorted(each.parts)), each.share, each.witnesses)
                for each in localised[0].suspicions
            )

    def _outcomes(self, rounds: ProbeHistory, number: int) -> ProbeOutcomes:
        """Every informative probe of a round: without those over ports whose own status explains the loss."""
        heard, plan = rounds.heard[number], rounds.plan
        nodes = sorted(heard.keys() & plan.index.keys(), key=plan.index.__getitem__)
        parts: Parts = plan.parts(number)[np.array([plan.index[node] for node in nodes])]
        shares = np.ones((len(nodes), plan.probes_per_round))
        for at, node in enumerate(nodes):
            for probe, share in heard[node].failed.items():
                if probe < plan.probes_per_round:
                    shares[at, probe] = share
        dark = self._conditions.reported_impaired() | {
            f"{node}.{port}" for node, each in heard.items() for port in each.impaired_ports
        }
        known = [plan.number[link] for link in dark if link in plan.number]
        if known:
            is_dark = np.zeros(len(plan.names) + 1, bool)  # the last entry is for parts that do not exist
            is_dark[known] = True
            keep = ~is_dark[parts[:, :, :LINK_COLUMNS]].any(axis=2)
            return ProbeOutcomes(parts[keep], shares[keep])
        return ProbeOutcomes(parts.reshape(shares.size, -1), shares.ravel())

    # -- what is shown ------------------------------------------------------------------------------------------------

    def suspicions(self) -> list[SuspectedParts]:
        """What the newest round points at, confirmed or not."""
        return [each for name in sorted(self._suspicions) for each in self._suspicions[name]]

    def rounds(self) -> list[tuple[int, int, int, int]]:
        """For each round kept, newest first: its number, nodes that reported, probes sent and failed."""
        numbers = sorted({number for rounds in self._histories.values() for number in rounds.heard}, reverse=True)
        reported = []
        for number in numbers:
            heard = [each for rounds in self._histories.values() for each in rounds.heard.get(number, {}).values()]
            reported.append(
                (number, len(heard), sum(each.sent for each in heard), sum(len(each.failed) for each in heard))
            )
        return reported


def _is_cleared(part: int, seen: list[ProbeOutcomes]) -> bool:
    """Whether in the two newest rounds some probe over the part came through at full rate."""
    return len(seen) >= 2 and all(outcomes.best(part) >= PASS_SHARE for outcomes in seen[:2])
