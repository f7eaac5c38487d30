"""Flapping ports: dark for the first half of each period, up for the second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from matrixcommon.model.clock import Clock, pause
from matrixresource.agent.fault_catalogue import FLAP_PERIOD_S
from matrixresource.agent.hardware import InjectedFault

LEAST_PAUSE_S = 0.05


class Flapping:
    """`strike` is called with a fault whenever it starts or stops acting. `run` runs beside the fleet."""

    def __init__(self, clock: Clock, strike: Callable[[InjectedFault], None]) -> None:
        self._clock = clock
        self._strike = strike
        self._began_at: dict[str, float] = {}
        self._faults: dict[str, InjectedFault] = {}
        self._resting: set[str] = set()
        self._news = asyncio.Event()

    def follow(self, faults: Mapping[str, InjectedFault]) -> None:
        """Set the present faults."""
        self._faults = {name: fault for name, fault in faults.items() if fault.kind == "link-flapping"}
        self._resting &= set(self._faults)
        self._began_at = {name: at for name, at in self._began_at.items() if name in self._faults}
        self._news.set()

    def rests(self, name: str) -> bool:
        """Whether that fault is flapping and not acting at present."""
        return name in self._resting

    async def run(self) -> None:
        """Forever: switch faults as they are due."""
        while True:
            self._news.clear()
            wait_s = min((self._turn(fault) for fault in list(self._faults.values())), default=3600.0)
            await pause(self._clock, max(LEAST_PAUSE_S, wait_s), self._news)

    def _turn(self, fault: InjectedFault) -> float:
        """Let the fault act or rest, as is due. Return the seconds until the next switch."""
        now, half_s = self._clock.now(), float(fault.parameters.get("periodS", FLAP_PERIOD_S)) / 2
        halves, into_s = divmod(now - self._began_at.setdefault(fault.name, now) + LEAST_PAUSE_S / 2, half_s)
        rests = halves % 2 == 1
        if rests != self.rests(fault.name):
            (self._resting.add if rests else self._resting.discard)(fault.name)
            self._strike(fault)
        return half_s - into_s
