"""Tables of CloudMatrix-Infer: deployments as requested and as laid out, and the tokens each tenant used.

What an engine holds (requests, caches) is soft state and is in no table.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Integer, String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from infer_workload.contract import DeploymentRequest, DeploymentView
from infer_workload.serving.metering import Usage
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from matrixcommon.persistence.database_session import Database, ResourceRow, find, journal_tables


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class DeploymentRow(ResourceRow, Base):
    """One deployment."""

    __tablename__ = "deployments"
    kind = "deployment"

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
        return DeploymentRequest.model_validate(self.request)

    def view(self) -> DeploymentView:
        request = self.spec.shown_to(self.project or DEFAULT_PROJECT)
        return self.view_as(DeploymentView, instance=request.instance, model=request.model, request=request)


class UsageRow(Base):
    """Tokens of one key on one deployment."""

    __tablename__ = "usage"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    deployment: Mapped[str] = mapped_column(String(127), primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger, default=0)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cached_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    completion_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    version: Mapped[int] = mapped_column(Integer, default=0)


class InferStore:
    """The tables, asked in the words of the domain."""

    def __init__(self, records: Database) -> None:
        self.records = records

    def deployment(self, session: Session, name: str) -> DeploymentRow:
        return find(session, DeploymentRow, name)

    def deployments(self, session: Session) -> list[DeploymentRow]:
        return list(session.scalars(select(DeploymentRow).order_by(DeploymentRow.name)))

    def usage(self, session: Session, project: str | None = None) -> list[UsageRow]:
        asked = select(UsageRow).order_by(UsageRow.project, UsageRow.key, UsageRow.deployment)
        return list(session.scalars(asked if project is None else asked.where(UsageRow.project == project)))

    def charge(self, used: Usage) -> None:
        """Add tokens to their tenants' accounts, all in one transaction."""
        with self.records.transaction() as session:
            for (tenant, deployment), counts in used.items():
                project, _, key = tenant.partition("/")
                row = session.get(UsageRow, (project, key, deployment))
                if row is None:
                    row = UsageRow(project=project, key=key, deployment=deployment)
                    row.requests = row.prompt_tokens = row.cached_tokens = row.completion_tokens = row.version = 0
                    session.add(row)
                for name, count in counts.items():
                    setattr(row, name, getattr(row, name) + count)
                row.version += 1
