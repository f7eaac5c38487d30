"""DrainedElements: the effect of drains on the fabric: routes around what is out of use, and who may still send over
it.

The elements carry their traffic until every agent has acknowledged routes that avoid them. A node whose agent is silent
keeps forwarding as before, so a drain waits for it. Reports about a drained link are processed as usual.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixlink.fabric.condition.elements import merge_ports
from matrixlink.routing.route_crossing import PortsByOwner, route_uses_ports
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import DrainRow


class DrainedElements:
    """For one fabric. Used inside the caller's transaction."""

    def __init__(self, slice_controller: SliceController) -> None:
        self.slice_controller = slice_controller
        self.store = slice_controller.store
        self.promises = slice_controller.promises
        self.fabric = slice_controller.fabric

    def apply(self, session: Session) -> None:
        """Update the fabric with what is drained now, and reroute slices accordingly."""
        self.promises.mark_stale()
        self.fabric.set_drained(merge_ports([row.ports for row in self.store.active_drains(session)]))
        self.promises.trim_withdrawing()
        self.slice_controller.reroute_slices(session, self.promises.stale_routes())

    def update_waiting(self, session: Session, row: DrainRow) -> None:
        """Record on a drain which programs may still send over its ports."""
        waiting = self._crossing_programs(session, row.ports)
        if (row.waiting_for, row.message) != (len(waiting), _describe_waiting(waiting)):
            row.waiting_for, row.message = len(waiting), _describe_waiting(waiting)

    def _crossing_programs(self, session: Session, out: PortsByOwner) -> list[str]:
        """Programs that may still send over these ports: not acknowledged, or acknowledged and using them."""
        found = []
        for name in self._affected_slices(out):
            for program in self.store.programs(session, name):
                there = program.action == "program" and program.state == "Programmed"
                if not there or route_uses_ports(self.fabric, program.node, program.body, out):
                    found.append(program.name)
        return found

    def _affected_slices(self, out: PortsByOwner) -> list[str]:
        """Slices with a member whose ports, or whose leaf's trunks, are among these."""
        roll, names = self.promises.slices, set[str]()
        for owner, ports in out.items():
            nodes = [owner]
            if self.fabric.is_leaf(owner):
                nodes = [node for node in self.fabric.nodes() if owner in self.fabric.leaves_at(node)]
            for plane in {self.fabric.ports.plane_of[port] for port in ports}:
                names.update(roll.names_at(plane, nodes))
        for name, peers in self.promises.peered_members.items():
            near = {leaf for node in peers for leaf in self.fabric.leaves_at(node)}
            if not out.keys().isdisjoint(near.union(peers)):
                names.add(name)
        return sorted(names)


def _describe_waiting(waiting: list[str]) -> str:
    if not waiting:
        return "no route crosses it"
    more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
    return f"waits for {', '.join(waiting[:3])}{more} to acknowledge routes that go around it"[:300]
