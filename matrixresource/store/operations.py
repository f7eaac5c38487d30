"""Tables of MatrixResource's workflows: runs over defragmentations and their moves, and drains of the engine."""

from __future__ import annotations

from matrixcommon.workflows.rows import WorkflowDrainRow, WorkflowRow
from matrixresource.store.tables import Base


class OperationRow(WorkflowRow, Base):
    """One run of a workflow over a defragmentation, or over an allocation one of whose members it moves."""

    __tablename__ = "operations"


class WorkflowDrains(WorkflowDrainRow, Base):
    """Drains of this service's workflow engine."""

    __tablename__ = "workflow_drains"
