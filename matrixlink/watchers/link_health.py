"""Asks the switchboard to reroute around what agents reported lost, and back when it returns; finishes withdrawals that
wait for agents nobody can reach. Nudged by reports, and on a period in case a nudge was lost."""

from __future__ import annotations

from matrixlink.switchboard import Switchboard


class LinkHealth:
    """One run looks at everything and does only what is due."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard

    async def watch(self) -> str:
        rerouted = self._switchboard.reroute()
        gone = self._switchboard.settle_all()
        return f"{len(rerouted)} slices rerouted, {len(gone)} gone"
