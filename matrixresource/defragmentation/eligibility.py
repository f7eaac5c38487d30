"""Who may move an allocation in a defragmentation, derived from its labels.

Allocations of instances are moved by MatrixCompute, with their slices; other whole nodes by MatrixResource itself. Pods
cannot be moved while they run, and nobody moves what a reservation holds.
"""

from __future__ import annotations

from matrixresource.contract.defragmentations import INSTANCE_LABEL, POD_LABEL, Mover
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.tables import PartitionRow

RESERVATION_LABEL = "cloudmatrix.io/reservation"


def migration_owner(row: AllocationRow, parts: list[PartitionRow]) -> Mover | None:
    """None for allocations that are not moved: pods, parts of nodes, pools, and those that are moving, leaving or
    broken."""
    settled = row.state in ("Reserved", "Binding", "Bound") and row.moving_to is None
    if not settled or parts or POD_LABEL in row.labels or row.labels.get(RESERVATION_LABEL) == row.name:
        return None
    return "MatrixCompute" if INSTANCE_LABEL in row.labels else "MatrixResource"
