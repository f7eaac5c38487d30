"""Defragmentations: one row per plan, with its moves, and their states."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Boolean, Float, Integer, String, Text, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.state_machine import State, StateMachine
from matrixcommon.persistence.database_session import ResourceRow
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import DefragmentationView, MoveView
from matrixresource.store.tables import Base

DEFRAGMENTATION_STATES = StateMachine(
    "defragmentation",
    start="Proposed",
    states=[
        State("Proposed", "waiting for review; nothing is kept and nothing moves"),
        State("Approved", "its room and the targets of its moves are kept from new work"),
        State("Running", "members move one after another, each serving until its successor has taken over", 86_400),
        State("Done", "the room is free for whoever comes first"),
        State("Cancelled", "cancelled; completed moves stay"),
        State("Failed", "a move could not be carried out; see condition Progressing"),
        State("Stale", "the machine has changed, and the plan would cost more or is impossible: request a new one"),
    ],
    moves={
        "Proposed": ["Approved", "Cancelled", "Stale"],
        "Approved": ["Running", "Done", "Cancelled", "Stale"],
        "Running": ["Done", "Cancelled", "Failed", "Stale"],
        "Done": [],
        "Cancelled": [],
        "Failed": [],
        "Stale": [],
    },
)

IN_PROGRESS = ("Approved", "Running")


class DefragmentationRow(ResourceRow, Base):
    """One plan. `moves` are `MoveView`s in wire form, completed ones first; `room` names the nodes of the block."""

    __tablename__ = "defragmentations"
    kind = "defragmentation"
    MOVES = DEFRAGMENTATION_STATES

    nodes: Mapped[int] = mapped_column(Integer)
    level: Mapped[str] = mapped_column(String(12))
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    moves: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    room: Mapped[list[str]] = mapped_column(JSON)
    block_before: Mapped[int] = mapped_column(Integer)
    block_after: Mapped[int] = mapped_column(Integer)
    npus: Mapped[float] = mapped_column(Float)
    exact: Mapped[bool] = mapped_column(Boolean)
    cancelling: Mapped[bool] = mapped_column(Boolean, default=False)
    topology_version: Mapped[str] = mapped_column(String(200))
    message: Mapped[str] = mapped_column(Text, default="")

    def spec(self) -> AllocationRequest:
        return AllocationRequest.from_stored(self.request)

    def steps(self) -> list[MoveView]:
        return [MoveView.from_stored(move) for move in self.moves]

    def current_step(self) -> MoveView | None:
        """The first move that is not complete; None if all are."""
        return next((step for step in self.steps() if step.open), None)

    def set_steps(self, steps: list[MoveView]) -> None:
        written = [step.wire() for step in steps]
        if written != self.moves:
            self.moves = written

    def view(self) -> DefragmentationView:
        steps = self.steps()
        done = [step for step in steps if not step.open]
        return self.view_as(
            DefragmentationView,
            request=self.spec(),
            moves=steps,
            npus_moved=sum(step.npus for step in done),
            moves_done=len(done),
        )


def in_state(session: Session, *states: str) -> list[DefragmentationRow]:
    """Plans in any of these states, by name."""
    query = select(DefragmentationRow).where(DefragmentationRow.state.in_(states)).order_by(DefragmentationRow.name)
    return list(session.scalars(query))
