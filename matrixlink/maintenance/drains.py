"""Drains: parts of the fabric taken out of use for maintenance, make before break, and returned to service.

A drain is first evaluated as a what-if and refused if it would break a floor or cut members off, unless that is
accepted explicitly. In the same transaction every slice whose routes used the elements gets routes around them, with
the next generation; the workflow `drain-elements` waits for the agents and marks it Drained. Deleting the drain returns
the elements to service, and routes return to them at once.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import pluralized
from matrixcommon.persistence.database_session import find
from matrixcommon.workflows.runner import WorkflowRunner
from matrixlink.admission.what_if import Scenario, changed_ports, evaluate
from matrixlink.contract.drains import DrainRequest, DrainView
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.fabric.condition.elements import Ports, all_ports, merge_ports
from matrixlink.maintenance.drain_workflow import DRAIN, DrainContext
from matrixlink.maintenance.drained_elements import DrainedElements
from matrixlink.store.tables import DRAINING, RESTORED, DrainRow, OperationRow

BLOCKING_MAX = 20


class Drains:
    """The verbs on drains."""

    def __init__(self, elements: DrainedElements, runner: WorkflowRunner[DrainContext, OperationRow]) -> None:
        self._elements = elements
        self._runner = runner
        self._store = elements.store
        self._promises = elements.promises
        self._fabric = elements.fabric
        elements.slice_controller.on_settled.append(self._check_drains)

    def ensure(self, name: str, request: DrainRequest, *, validate_only: bool = False) -> DrainView:
        """Take elements out of use, or change which. Repeating the same request changes nothing. Raises
        InsufficientBandwidth with the slices whose floors would break."""
        validate_resource_name(name)
        ports = all_ports(self._fabric, request.elements, "elements")
        with self._promises.transaction(dry=validate_only) as session:
            row = session.get(DrainRow, name)
            spec = (request.project, request.labels, request.elements, request.reason, request.even_if_floors_break)
            if row is not None and row.spec == spec and row.state != RESTORED:
                return row.view()
            judged = self._evaluate(session, name, ports, request)
            if row is None:
                row = DrainRow(name=name, state=DRAINING)
                session.add(row)
            else:
                row.generation += 1
            row.project, row.labels, row.elements, row.reason, row.even_if_floors_break = spec
            row.ports = {owner: sorted(names) for owner, names in sorted(ports.items())}
            row.state = DRAINING
            if not validate_only:
                self._elements.apply(session)
                self._runner.open(session, DRAIN.verb, row)
            self._elements.update_waiting(session, row)
            view = row.view()
        return view.model_copy(update={"what_if": judged}) if validate_only else row.view()

    def restore(self, name: str) -> None:
        """Return a drain's elements to service."""
        with self._promises.transaction() as session:
            row = find(session, DrainRow, name)
            self._runner.overtake(session, row, "its deletion")
            session.delete(row)
            self._elements.apply(session)

    def _check_drains(self, session: Session) -> None:
        """Check drains again after agents acknowledged something."""
        self._runner.nudge()

    # -- parts --------------------------------------------------------------------------------------------------------

    def _evaluate(self, session: Session, name: str, ports: Ports, request: DrainRequest) -> WhatIfView:
        supposed = self._fabric.copy()
        supposed.set_drained(
            merge_ports([*(row.ports for row in self._store.active_drains(session) if row.name != name), ports])
        )
        asked = WhatIfRequest(drain=request.elements)
        judged = evaluate(self._promises, Scenario(supposed, changed_ports(self._fabric, supposed)), asked)
        broken = [effect for effect in judged.slices if effect.broken or effect.pairs_cut]
        if broken and not request.even_if_floors_break:
            raise InsufficientBandwidth(
                f"without these elements {pluralized(len(broken), 'slice')} would have less than they were promised; "
                "wait, move them, or set evenIfFloorsBreak",
                field="elements",
                blocking=[
                    {
                        "plane": effect.plane,
                        "slice": effect.slice,
                        "floorGbpsPerNpu": effect.floor_gbps_per_npu,
                        "keptGbpsPerNpu": effect.kept_before_gbps_per_npu,
                        "wouldKeepGbpsPerNpu": effect.kept_after_gbps_per_npu,
                        "pairsCut": effect.pairs_cut,
                    }
                    for effect in broken[:BLOCKING_MAX]
                ],
            )
        return judged
