"""Who may move an allocation when room is made, read off its labels.

What an instance is placed on is moved by MatrixCompute, with its slices; other whole nodes by MatrixResource itself.
Pods cannot be moved while they run, and what a reservation holds has nobody to move yet.
"""

from __future__ import annotations

from matrixresource.contract.defragmentations import INSTANCE_LABEL, POD_LABEL, Mover
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.tables import PartitionRow

RESERVATION_LABEL = "cloudmatrix.io/reservation"


def migration_owner(row: AllocationRow, parts: list[PartitionRow]) -> Mover | None:
    """None for what is not moved: pods, parts of nodes and pools, what is moving already, leaving or broken."""
    settled = row.state in ("Reserved", "Binding", "Bound") and row.moving_to is None
    if not settled or parts or POD_LABEL in row.labels or row.labels.get(RESERVATION_LABEL) == row.name:
        return None
    return "MatrixCompute" if INSTANCE_LABEL in row.labels else "MatrixResource"
