"""Tables of stored reports: the listed metadata and, separately, the content, which watches do not carry."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from infer_workload.metering.tables import Base
from infer_workload.report_store.contract import ReportView
from matrixcommon.persistence.database_session import ResourceRow


class ReportRow(ResourceRow, Base):
    """One report of a project, without its content."""

    __tablename__ = "reports"
    kind = "report"

    experiment: Mapped[str] = mapped_column(String(20))
    title: Mapped[str] = mapped_column(String(200))
    command: Mapped[str] = mapped_column(String(4000), default="")
    author: Mapped[str] = mapped_column(String(63), default="")
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0)

    def view(self) -> ReportView:
        return self.view_as(ReportView)


class ReportContentRow(Base):
    """The content of a report as JSON text; `name` is the report's."""

    __tablename__ = "report_contents"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    content: Mapped[str] = mapped_column(Text)
