"""The agent's part of probing: once a round it sends the plan's probes and keeps which went wrong until the next.

Rounds are counted on the clock all nodes share, so that everybody probes by the same plan. What a port's own status
explains is not told again as a failed probe: a report names the ports, and MatrixLink leaves out what crosses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from matrixlink.contract import FailedProbe, ReportedProbes
from matrixlink.ports import Wires
from matrixlink.probing.localise import WHOLE
from matrixlink.probing.plan import Probe, ProbePlan
from matrixresource.vocabulary.planes import Plane

ROUND_S, ROUND_FLOOR_WALL_S = 10.0, 0.5
"""A round each 10 s of emulated time (the incumbent's ping mesh: an interval of 1 to 60 s, Ascend/mind-cluster)."""


class AgentProbing:
    """One node's probes. `wires` is what it sends them over; `round_s` how long a round lasts, emulated seconds."""

    def __init__(self, node: str, plan: ProbePlan, wires: Wires, round_s: float = ROUND_S) -> None:
        self._node = node
        self._plan = plan
        self._wires = wires
        self._round_s = round_s
        self._round = -1
        self._failed: list[tuple[Probe, float]] = []
        self._latency_us: dict[Plane, float] = {}
        self._sent = 0

    def report(self, now: float, ports: Mapping[str, float]) -> ReportedProbes:
        """The present round: sent now, unless it was before. `ports`: those that say they are below their rate."""
        round = int(now / self._round_s)
        if round != self._round:
            self._send(round)
        failed = [
            FailedProbe(probe=probe.number, share=round_share(share))
            for probe, share in self._failed
            if not any(link in probe.links for link in (f"{self._node}.{p}" for p, s in ports.items() if s < 1))
        ]
        return ReportedProbes(round=self._round, sent=self._sent, failed=failed, latency_us=self._latency_us)

    def _send(self, round: int) -> None:
        probes = self._plan.round_of(self._node, round)
        answers = self._wires.send(self._node, probes)
        self._round, self._sent = round, len(probes)
        self._failed = [(probe, share) for probe, (share, _) in zip(probes, answers, strict=True) if share < WHOLE]
        self._latency_us = _mean_latencies(probes, answers)


def round_share(share: float) -> float:
    return round(share, 4)


def _mean_latencies(probes: Sequence[Probe], answers: Sequence[tuple[float, float]]) -> dict[Plane, float]:
    took: dict[Plane, list[float]] = defaultdict(list)
    for probe, (share, latency_us) in zip(probes, answers, strict=True):
        if share > 0:
            took[probe.plane].append(latency_us)
    return {plane: round(sum(each) / len(each), 3) for plane, each in took.items()}
