"""The table of deployments, as requested and as laid out. An engine's requests and caches are soft state and are not
stored."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from infer_workload.contract.deployments import DeploymentRequest, DeploymentView
from infer_workload.contract.roles import DrainRequest
from infer_workload.layout.draining import Drain
from infer_workload.metering.tables import Base
from infer_workload.serving.states import DEPLOYMENT_STATES
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from matrixcommon.persistence.database_session import Database, find
from matrixcommon.persistence.resource_row import TimedStateRow


class DeploymentRow(TimedStateRow, Base):
    """One deployment."""

    __tablename__ = "deployments"
    kind = "deployment"
    MOVES = DEPLOYMENT_STATES

    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    endpoint: Mapped[str] = mapped_column(String(200), default="")
    fabric_generation: Mapped[int] = mapped_column(BigInteger, default=0)
    pools: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    roles: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    load: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    drain: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    scale: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The `ScaleRequest`, in its wire form."""

    @property
    def spec(self) -> DeploymentRequest:
        return DeploymentRequest.from_stored(self.request)

    def adopt_drain(self, request: DrainRequest, draining: Drain | None) -> bool:
        """Whether the same nodes are already draining. If so, the drain now belongs to the new requester, here and in
        `draining`: the former operation has ended, as an instance has only one at a time."""
        if not self.drain or set(self.drain["nodes"]) != set(request.nodes):
            return False
        if request.by and request.by != self.drain.get("by"):
            self.drain = {**self.drain, "by": request.by}
            if draining is not None:
                draining.by = request.by
        return True

    def view(self) -> DeploymentView:
        request = self.spec.shown_to(self.project or DEFAULT_PROJECT)
        asked = {field: getattr(request, field) for field in DeploymentRequest.model_fields if field != "labels"}
        return self.view_as(DeploymentView, **asked)


class InferStore:
    """Queries of the deployments table."""

    def __init__(self, records: Database) -> None:
        self.records = records

    def deployment(self, session: Session, name: str) -> DeploymentRow:
        return find(session, DeploymentRow, name)

    def deployments(self, session: Session) -> list[DeploymentRow]:
        return list(session.scalars(select(DeploymentRow).order_by(DeploymentRow.name)))
