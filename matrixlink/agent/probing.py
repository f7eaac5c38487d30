"""The agent's part of probing: once per round it sends the plan's probes, and keeps the failures until the next round.

Rounds are counted on the clock that all nodes share, so that all follow the same plan. Failures explained by a port's
own status are not reported as failed probes: a report names the ports, and MatrixLink ignores probes over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

from matrixlink.contract.link_reports import FailedProbe, ReportedProbes
from matrixlink.ports import ProbeRoundResult, ProbeTransport
from matrixlink.probing.plan import ROUND_S, ProbePlan


class AgentProbing:
    """One node's probes. `plan` returns the present plan; `wires` is what probes are sent over; `round` gives the
    number of the round at a time, which is the same on all nodes."""

    def __init__(
        self,
        node: str,
        plan: Callable[[], ProbePlan],
        wires: ProbeTransport,
        round_at: Callable[[float], float] = lambda now: now / ROUND_S,
    ) -> None:
        self._node = node
        self._plan = plan
        self._transport = wires
        self._round_at = round_at
        self._round = -1
        self._sweep: ProbeRoundResult | None = None

    def report(self, now: float, ports: Mapping[str, float]) -> ReportedProbes:
        """The results of the present round; its probes are sent now unless they already were. `ports`: those reported
        below their rate."""
        round, plan = int(self._round_at(now)), self._plan()
        if self._sweep is None or round != self._round:
            self._round, self._sweep = round, self._transport.sweep(plan, self._node, round)
        known = {f"{self._node}.{port}" for port, share in ports.items() if share < 1}
        failed = [
            FailedProbe(probe=probe, share=floor(share * 1e4) / 1e4)
            for probe, share in self._sweep.failed
            if not known or known.isdisjoint(plan.links(self._node, round, probe))
        ]
        latency_us = dict(self._sweep.latency_us)
        return ReportedProbes(round=round, sent=self._sweep.sent, failed=failed, latency_us=latency_us)
