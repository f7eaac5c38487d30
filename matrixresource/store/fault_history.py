"""FaultRecords: the history behind the evaluation of faults, one record per node, component and code.

Records are read and written in the transaction that processes the report, so that counts and the resulting view are
durable together. A record without information is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import JSON, Boolean, Float, String, bindparam, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixresource.contract.agents import ReportedFault
from matrixresource.contract.nodes import FaultView
from matrixresource.nodes.fault_levels import fault_table, level_of
from matrixresource.nodes.fault_rules import (
    UPLINK_COMPONENT,
    FaultRecord,
    after_observation,
    after_release,
    dies_of,
    fault_view,
    faults_of,
    lost_uplinks,
)
from matrixresource.store.tables import Base, NodeRow
from matrixresource.store.topology_versions import spec_at


class FaultRecordRow(Base):
    """A `FaultRecord` as stored in the database."""

    __tablename__ = "fault_records"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    component: Mapped[str] = mapped_column(String(40), primary_key=True)
    code: Mapped[str] = mapped_column(String(40), primary_key=True)
    times: Mapped[list[float]] = mapped_column(JSON, default=list)
    since: Mapped[float | None] = mapped_column(Float)
    gone_at: Mapped[float | None] = mapped_column(Float)
    separated_at: Mapped[float | None] = mapped_column(Float)
    prolonged: Mapped[bool] = mapped_column(Boolean, default=False)

    @property
    def record(self) -> FaultRecord:
        return FaultRecord(tuple(self.times or ()), self.since, self.gone_at, self.separated_at, bool(self.prolonged))

    def update(self, record: FaultRecord) -> None:
        if list(record.times) != (self.times or []):
            self.times = list(record.times)
        self.since, self.gone_at = record.since, record.gone_at
        self.separated_at, self.prolonged = record.separated_at, record.prolonged


_OF_NODES = select(FaultRecordRow).where(FaultRecordRow.node.in_(bindparam("nodes", expanding=True)))


class FaultRecords:
    """The records of some nodes, within one transaction."""

    def __init__(self, session: Session, nodes: Iterable[str]) -> None:
        self._session = session
        self._rows: dict[str, dict[tuple[str, str], FaultRecordRow]] = {}
        if names := [*map(str, nodes)]:
            for row in session.scalars(_OF_NODES, {"nodes": names}):
                self._rows.setdefault(row.node, {})[row.component, row.code] = row

    def has_records(self, node: str) -> bool:
        """Whether there are any for this node."""
        return bool(self._rows.get(node))

    def observe(self, node: NodeRow, reported: Sequence[ReportedFault], now: float) -> list[FaultView]:
        """Take in which faults are present on a node at `now`; all others are absent. Return the resulting faults."""
        if not reported and node.name not in self._rows:
            return []
        rows, present = self._rows.setdefault(node.name, {}), {(each.component, each.code): each for each in reported}
        for component, code in present.keys() - rows.keys():
            rows[component, code] = FaultRecordRow(node=node.name, component=component, code=code)
            self._session.add(rows[component, code])
        table = fault_table()
        for key, row in rows.items():
            rules = table.frequency.get(row.code), table.duration.get(row.code)
            row.update(after_observation(row.record, key in present, now, *rules))
        return self._fault_views(node, present)

    def release(self, node: NodeRow, dies: int) -> list[FaultView]:
        """Release separations of these dies (a mask) and restart their counts. Return the resulting faults of the
        node."""
        for row in self._rows.get(node.name, {}).values():
            if dies_of(row.component) & dies:
                row.update(after_release(row.record))
        kept = {(fault.component, fault.code): fault for fault in faults_of(node) if fault.active}
        reported = {
            key: ReportedFault(code=fault.code, component=fault.component, message=fault.message)
            for key, fault in kept.items()
        }
        return self._fault_views(node, reported)

    def _fault_views(self, node: NodeRow, present: dict[tuple[str, str], ReportedFault]) -> list[FaultView]:
        rows = self._rows.get(node.name, {})
        views = []
        for key, row in sorted(rows.items()):
            record, seen = row.record, present.get(key)
            if record.idle:
                del rows[key]
                if row in self._session.new:  # appeared and disappeared within a batch
                    self._session.expunge(row)
                else:
                    self._session.delete(row)
            level = level_of(row.code, seen.severity if seen else None).name
            since = timestamp(
                next(at for at in (record.since, record.separated_at, record.gone_at, 0.0) if at is not None)
            )
            view = fault_view(row.code, row.component, record, level, since, seen.message if seen else "")
            if view is not None:
                views.append(view)
        return views + self._uplink_faults(node, views)

    def _uplink_faults(self, node: NodeRow, faults: list[FaultView]) -> list[FaultView]:
        """A fault of the node for every L1 chip that has lost its last path to the L2 switches."""
        table, active = (
            fault_table(),
            [each for each in faults if each.active and UPLINK_COMPONENT.fullmatch(each.component)],
        )
        if not active:
            return []
        uplinks = spec_at(self._session, node.supernode).ub.l2_per_sub_plane
        return [
            FaultView(
                code=table.uplinks_code,
                component=chip,
                level=table.uplinks.name,
                since=max(fault.since for fault in active),
                message=table.uplinks.meaning,
                raised_by="Uplinks",
            )
            for chip in lost_uplinks([fault.component for fault in active], uplinks)
        ]
