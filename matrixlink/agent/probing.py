"""The agent's part of probing: once a round it sends the plan's probes and keeps which went wrong until the next.

Rounds are counted on the clock all nodes share, so that everybody probes by the same plan. What a port's own status
explains is not reported again as a failed probe: a report names the ports, and MatrixLink leaves out what crosses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

from matrixlink.contract.slices import FailedProbe, ReportedProbes
from matrixlink.ports import ProbeRoundResult, ProbeTransport
from matrixlink.probing.plan import ROUND_S, ProbePlan


class AgentProbing:
    """One node's probes. `plan` answers with the present plan; `wires` is what probes are sent over; `round` the
    number of the present one at an instant, which all nodes count alike."""

    def __init__(
        self,
        node: str,
        plan: Callable[[], ProbePlan],
        wires: ProbeTransport,
        round_at: Callable[[float], float] = lambda now: now / ROUND_S,
    ) -> None:
        self._node = node
        self._plan = plan
        self._wires = wires
        self._round_at = round_at
        self._round = -1
        self._sweep: ProbeRoundResult | None = None

    def report(self, now: float, ports: Mapping[str, float]) -> ReportedProbes:
        """The present round: sent now, unless it was before. `ports`: those that say they are below their rate."""
        round, plan = int(self._round_at(now)), self._plan()
        if self._sweep is None or round != self._round:
            self._round, self._sweep = round, self._wires.sweep(plan, self._node, round)
        known = {f"{self._node}.{port}" for port, share in ports.items() if share < 1}
        failed = [
            FailedProbe(probe=probe, share=floor(share * 1e4) / 1e4)
            for probe, share in self._sweep.failed
            if not known or known.isdisjoint(plan.links(self._node, round, probe))
        ]
        latency_us = dict(self._sweep.latency_us)
        return ReportedProbes(round=round, sent=self._sweep.sent, failed=failed, latency_us=latency_us)
