"""Tables of MatrixResource's workflows: those under way over defragmentations and their moves, and drains of them."""

from __future__ import annotations

from matrixcommon.workflows.rows import WorkflowDrainRow, WorkflowRow
from matrixresource.store.tables import Base


class OperationRow(WorkflowRow, Base):
    """One run of a workflow over a defragmentation, or over an allocation of which it moves a member."""

    __tablename__ = "operations"


class WorkflowDrains(WorkflowDrainRow, Base):
    """Drains of this service's engine."""

    __tablename__ = "workflow_drains"
