"""A refusal tells how many nodes are on their way into use, so that whoever asked knows whether waiting helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from matrixcommon.model.errors import InsufficientCapacity
from matrixresource.store.tables import NodeRow
from tests.matrixresource.machine import Machine


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("Cleaning", "more than 45 free nodes; 2 nodes are being prepared for use (2 Cleaning)"),
        ("Verifying", "more than 45 free nodes; 2 nodes are being prepared for use (2 Verifying)"),
        ("Clean", "more than 47 free nodes"),
    ],
)
def test_nodes_that_will_be_available_are_counted(tmp_path: Path, status: str, ending: str) -> None:
    machine = Machine(tmp_path)
    machine.provision("stays", nodes=1)
    machine.provision("job", nodes=2)
    with machine.store.reading() as session:
        others = list(session.scalars(select(NodeRow.name).where(NodeRow.holder.is_distinct_from("job"))))
    machine.allocator.release("job")
    machine.report_all(*others, status=status)
    with pytest.raises(InsufficientCapacity) as refused:
        machine.reserve("all", nodes=48)
    assert refused.value.message.endswith(ending)
