"""The table of faults is kept with few questions: one reading of it a period, and the holders of faulty nodes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event

from matrixcommon.api.client import WatchEvent
from matrixcommon.persistence.database_session import Database
from matrixcompute.reconcilers.faults import FaultReconciler
from matrixcompute.store.store import Base, ComputeStore, FaultRow
from matrixresource.contract.nodes import FaultView, NodeView
from services.chassis.database import DatabaseEngine
from tests.clocks import FixedClock


class FaultTable:
    """The reconciler over a database; `queries` are the questions that it puts to it."""

    def __init__(self, folder: Any) -> None:
        database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        Base.metadata.create_all(database.engine)
        self.store = ComputeStore(Database(database.sessions, Base.metadata, FixedClock()))
        self.nodes = [node(number) for number in range(48)]
        self.reconciler = FaultReconciler(self.store, SimpleNamespace(nodes=self._nodes))
        self.queries: list[str] = []
        event.listen(database.engine, "before_cursor_execute", self._ask)

    async def _nodes(self) -> list[NodeView]:
        return self.nodes

    def _ask(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "FROM instances" in statement or "FROM faults" in statement:
            self.queries.append(statement.partition("FROM ")[2].split()[0])

    async def observe(self, *nodes: NodeView) -> bool:
        """News of these, written down; whether any of it mattered."""
        taken = [self.reconciler.observe(WatchEvent("MODIFIED", 1, each.wire())) for each in nodes]
        await self.reconciler.reconcile_changed()
        return any(taken)

    def faults(self) -> set[str]:
        with self.store.reading() as session:
            return {row.node for row in session.query(FaultRow)}


def node(number: int, *codes: str, agent: str = "Connected") -> NodeView:
    return NodeView(
        name=f"sn0-c{number // 4:02}-n{number % 4}", supernode="sn0", cabinet=f"sn0-c{number // 4:02}", npus=8, cpus=4,
        schedulable=True, power="On", health="Healthy", agent=agent, epoch=1, desired_role="Member", state="Active",
        assignment_generation=1, observed_generation=1, allocation=f"instance-{number}",
        faults=[FaultView(code=code, component="npu1", level="RestartNPU", since="") for code in codes],
    )  # fmt: skip


@pytest.fixture
def table(tmp_path):
    return FaultTable(tmp_path)


async def test_machine_without_faults_costs_one_query_per_period(table):
    await table.reconciler.reconcile()
    table.queries.clear()
    await table.reconciler.reconcile()
    assert table.queries == ["faults"]


async def test_only_holders_of_faulty_nodes_are_queried(table):
    table.nodes[3], table.nodes[5] = node(3, "220001001"), node(5, agent="Lost")
    assert await table.reconciler.reconcile() == "2 nodes have faults"
    assert table.queries == ["faults", "instances", "instances"]
    assert table.faults() == {table.nodes[3].name, table.nodes[5].name}
    table.queries.clear()
    assert not await table.observe(node(7))
    assert table.queries == [], "news of a node that has none, and had none"
    assert await table.observe(node(3))
    assert table.faults() == {table.nodes[5].name}
    table.queries.clear()
    assert not await table.observe(node(3))
    assert table.queries == []


async def test_changes_are_coalesced_into_one_write(table):
    await table.reconciler.reconcile()
    table.queries.clear()
    assert await table.observe(node(1, "220001001"), node(2, agent="Lost"), node(4, "220001001"), node(4))
    assert table.faults() == {table.nodes[1].name, table.nodes[2].name}
    assert table.queries.count("faults") == 2, "one to write, one by this test"


async def test_older_events_do_not_overwrite_a_full_pass(table):
    await table.reconciler.reconcile()
    table.reconciler.observe(WatchEvent("MODIFIED", 1, node(1, agent="Lost").wire()))
    await table.reconciler.reconcile()
    await table.reconciler.reconcile_changed()
    assert table.faults() == set()
