"""Deletes history: operations, topology versions and reservations that ended long ago, each kept for the same time, and
node events beyond a fixed number."""

from __future__ import annotations

from matrixcommon.workflows.rows import delete_ended_workflows
from matrixresource.store.node_events import delete_old_events
from matrixresource.store.operations import OperationRow
from matrixresource.store.reservations import delete_ended_reservations
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import delete_superseded_versions


def delete_history(store: ResourceStore, before: float) -> None:
    """Delete what had ended by then (s, emulated), except what is still referred to."""
    delete_old_events(store)
    with store.transaction() as session:
        delete_ended_workflows(session, OperationRow, before)
        delete_ended_reservations(session, before)
        delete_superseded_versions(session, before)
