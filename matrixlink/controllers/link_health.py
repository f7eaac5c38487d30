"""Evaluates what agents reported and probes found, releases damped ports, has slices rerouted around losses and back,
and finishes withdrawals that wait for unreachable agents. Triggered by reports, and periodically in case a trigger was
lost."""

from __future__ import annotations

from matrixcommon.model.process_pauses import ProcessPauses
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_events import LinkEvents
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.slices.slice_controller import SliceController


class LinkHealth:
    """Each run checks everything and does only what is due."""

    def __init__(
        self,
        slice_controller: SliceController,
        conditions: LinkStateTracker,
        diagnosis: FaultLocaliser,
        events: LinkEvents,
        pauses: ProcessPauses,
    ) -> None:
        """`pauses` detects from the rhythm of these runs whether the process was paused."""
        self._slice_controller = slice_controller
        self._events = events
        self._conditions = conditions
        self._diagnosis = diagnosis
        self._pauses = pauses

    async def watch(self) -> str:
        self._pauses.record_beat()
        found = self._diagnosis.evaluate()
        if self._conditions.damped_links():
            with self._slice_controller.promises.transaction() as session:
                self._conditions.release(session)
        if self._events.due():
            with self._slice_controller.promises.transaction() as session:
                self._events.record_events(session)
        rerouted = self._slice_controller.reroute()
        gone = self._slice_controller.reconcile_all()
        return f"{len(found)} parts judged by probes, {len(rerouted)} slices rerouted, {len(gone)} gone"
