"""Flapping ports: dark for the first half of each period, up for the second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from matrixcommon.model.clock import Clock, pause
from matrixresource.agent.fault_catalogue import FLAP_PERIOD_S
from matrixresource.agent.hardware import InjectedFault

PAUSE_S_MIN = 0.05


class Flapping:
    """`apply_fault` is called with a fault whenever it starts or stops acting. `run` runs beside the fleet."""

    def __init__(self, clock: Clock, apply_fault: Callable[[InjectedFault], None]) -> None:
        self._clock = clock
        self._apply_fault = apply_fault
        self._began_at: dict[str, float] = {}
        self._faults: dict[str, InjectedFault] = {}
        self._resting: set[str] = set()
        self._faults_changed = asyncio.Event()

    def set_faults(self, faults: Mapping[str, InjectedFault]) -> None:
        """Set the present faults."""
        self._faults = {name: fault for name, fault in faults.items() if fault.kind == "link-flapping"}
        self._resting &= set(self._faults)
        self._began_at = {name: at for name, at in self._began_at.items() if name in self._faults}
        self._faults_changed.set()

    def is_resting(self, name: str) -> bool:
        """Whether that fault is flapping and not acting at present."""
        return name in self._resting

    async def run(self) -> None:
        """Forever: switch faults as they are due."""
        while True:
            self._faults_changed.clear()
            wait_s = min((self._switch_if_due(fault) for fault in list(self._faults.values())), default=3600.0)
            await pause(self._clock, max(PAUSE_S_MIN, wait_s), self._faults_changed)

    def _switch_if_due(self, fault: InjectedFault) -> float:
        """Let the fault act or rest, as is due. Return the seconds until the next switch."""
        now, half_s = self._clock.now(), float(fault.parameters.get("periodS", FLAP_PERIOD_S)) / 2
        halves, into_s = divmod(now - self._began_at.setdefault(fault.name, now) + PAUSE_S_MIN / 2, half_s)
        resting = halves % 2 == 1
        if resting != self.is_resting(fault.name):
            (self._resting.add if resting else self._resting.discard)(fault.name)
            self._apply_fault(fault)
        return half_s - into_s
