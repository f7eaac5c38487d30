"""Tables of kept reports: what lists show, and apart from it the content, which no watch carries."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from infer_workload.metering.tables import Base
from infer_workload.report_store.contract import ReportView
from matrixcommon.persistence.database_session import ResourceRow


class ReportRow(ResourceRow, Base):
    """One report, of the project whose it is."""

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
    """Its content as JSON text; `name` is the report's."""

    __tablename__ = "report_contents"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    content: Mapped[str] = mapped_column(Text)
