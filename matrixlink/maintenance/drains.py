"""Drains: parts of the fabric taken out of use for maintenance, made before broken, and put back.

A drain is first judged as a what-if: where it would break a floor or cut members off it is refused, unless it is wanted
all the same. Then every slice whose routes crossed the elements gets routes around them, in a generation of its own.
The elements carry what they carry until every agent has acknowledged routes that no longer cross them, and only then is
the drain Drained. A node whose agent is silent keeps forwarding as it did, so a drain waits for it. Deleting the drain
puts the elements back: routes return to them at once. What agents report of a drained link continues being believed.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.persistence.database_session import find
from matrixlink.admission.what_if import Scenario, differing, evaluate
from matrixlink.contract.drains import DrainRequest, DrainView
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.fabric.condition.elements import Ports, all_ports, together
from matrixlink.routing.route_crossing import Out, route_uses_ports
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import DRAINED, DRAINING, DrainRow

BLOCKING_MAX = 20


class Drains:
    """The verbs over drains."""

    def __init__(self, slice_controller: SliceController) -> None:
        self._slice_controller = slice_controller
        self._store = slice_controller.store
        self._promises = slice_controller.promises
        self._fabric = slice_controller.fabric
        slice_controller.after_settle.append(self.reconcile)

    def ensure(self, name: str, request: DrainRequest, *, validate_only: bool = False) -> DrainView:
        """Take elements out of use, or change which; the same again is no news. Raises InsufficientBandwidth with the
        slices whose floors would break."""
        checked_resource_name(name)
        ports = all_ports(self._fabric, request.elements, "elements")
        with self._promises.changing(dry=validate_only) as session:
            row = session.get(DrainRow, name)
            spec = (request.project, request.labels, request.elements, request.reason, request.even_if_floors_break)
            if row is not None and row.spec == spec:
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
                self._apply(session)
            else:
                self.reconcile(session)
            view = row.view()
        return view.model_copy(update={"what_if": judged}) if validate_only else row.view()

    def restore(self, name: str) -> None:
        """Put a drain's elements back in service."""
        with self._promises.changing() as session:
            session.delete(find(session, DrainRow, name))
            self._apply(session)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _evaluate(self, session: Session, name: str, ports: Ports, request: DrainRequest) -> WhatIfView:
        supposed = self._fabric.copy()
        supposed.set_drained(together([*(row.ports for row in self._store.drains(session) if row.name != name), ports]))
        asked = WhatIfRequest(drain=request.elements)
        judged = evaluate(self._promises, Scenario(supposed, differing(self._fabric, supposed)), asked)
        broken = [effect for effect in judged.slices if effect.broken or effect.pairs_cut]
        if broken and not request.even_if_floors_break:
            raise InsufficientBandwidth(
                f"without these elements {len(broken)} slices would have less than they were promised; "
                "wait, move them, or say evenIfFloorsBreak",
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

    def _apply(self, session: Session) -> None:
        """Have the fabric know what is drained now, and slices routed accordingly."""
        self._promises.mark_stale()
        self._fabric.set_drained(together([row.ports for row in self._store.drains(session)]))
        self._promises.trim_leaving()
        self._slice_controller.reroute_around(session, self._promises.stale_routes())
        self.reconcile(session)

    def reconcile(self, session: Session) -> None:
        """Drains that no program crosses any more are Drained."""
        if not self._fabric.any_drained():
            return
        for row in self._store.drains(session, DRAINING):
            waiting = self._crossing(session, row.ports)
            if (row.waiting_for, row.message) != (len(waiting), _described(waiting)):
                row.waiting_for, row.message = len(waiting), _described(waiting)
            if not waiting:
                row.state = DRAINED

    def _crossing(self, session: Session, out: Out) -> list[str]:
        """Programs that may still send over these ports: not acknowledged, or acknowledged and crossing them."""
        found = []
        for name in self._concerned(out):
            for program in self._store.programs(session, name):
                there = program.action == "program" and program.state == "Programmed"
                if not there or route_uses_ports(self._fabric, program.node, program.body, out):
                    found.append(program.name)
        return found

    def _concerned(self, out: Out) -> list[str]:
        """Slices with a member whose ports, or whose leaf's trunks, are among these."""
        roll, names = self._promises.slices, set[str]()
        for owner, ports in out.items():
            nodes = [owner]
            if self._fabric.is_leaf(owner):
                nodes = [node for node in self._fabric.nodes() if owner in self._fabric.leaves_at(node)]
            for plane in {self._fabric.ports.plane_of[port] for port in ports}:
                names.update(roll.touching(plane, nodes))
        for name, peers in self._promises.peered.items():
            near = {leaf for node in peers for leaf in self._fabric.leaves_at(node)}
            if not out.keys().isdisjoint(near.union(peers)):
                names.add(name)
        return sorted(names)


def _described(waiting: list[str]) -> str:
    if not waiting:
        return "no route crosses it"
    more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
    return f"waits for {', '.join(waiting[:3])}{more} to acknowledge routes that go around it"[:300]
