"""ReportStore: stores reports of experiments within limits, and compares two of them.

A report is stored as sent and read only for a comparison. When a project reaches its limit, old reports are not deleted
automatically: they were stored on purpose, so they are deleted on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from infer_workload.experiments.comparison import compare, is_comparable
from infer_workload.report_store.contract import (
    ChangeView,
    ReportComparisonView,
    ReportContentView,
    ReportRequest,
    ReportView,
)
from infer_workload.report_store.tables import ReportContentRow, ReportRow
from matrixcommon.model.errors import InvalidField, QuotaExceeded
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.resource_key import name_of, project_of
from matrixcommon.persistence.database_session import Database, find

REPORTS_MAX = 200
BYTES_MAX = 32 << 20
"""Limits of one project. A report of a run has about 70 kB, so the first is usually reached first."""


class ReportStore:
    """Reports in one database. Limits apply to each project."""

    def __init__(self, records: Database, reports_max: int = REPORTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.records = records
        self._reports_max, self._bytes_max = reports_max, bytes_max

    def ensure(self, name: str, request: ReportRequest, author: str) -> ReportView:
        """Store a report, replacing one of the same name. Raises QuotaExceeded."""
        validate_resource_name(name)
        text = json.dumps(request.model_dump(mode="json", include={"document", "plots", "html"}), separators=(",", ":"))
        with self.records.transaction() as session:
            self._check_bounds(session, name, len(text))
            row = session.get(ReportRow, name)
            content = session.get(ReportContentRow, name)
            if row is None or content is None:
                row = ReportRow(name=name, project=project_of(name), generation=1, conditions=[], state="Kept")
                content = ReportContentRow(name=name, content=text)
                session.add_all([row, content])
            elif content.content != text or row.title != request.title or row.command != request.command:
                row.generation += 1
                content.content = text
            row.experiment, row.title, row.command = request.experiment, request.title, request.command
            row.labels, row.author, row.size_bytes = request.labels, author, len(text)
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a report. Raises NotFound."""
        with self.records.transaction() as session:
            session.delete(find(session, ReportRow, name))
            session.delete(session.get_one(ReportContentRow, name))

    def content(self, name: str) -> ReportContentView:
        """The content of a report. Raises NotFound."""
        with self.records.reading() as session:
            view, content = _read(session, name)
        about = view.model_dump(include={"name", "project", "experiment", "title", "command"})
        return ReportContentView.from_stored({**about, **content})

    def comparison(self, name: str, other: str) -> ReportComparisonView:
        """Compare two reports. Raises NotFound, and InvalidField if one is not of a run."""
        with self.records.reading() as session:
            found = [_read(session, each) for each in (name, other)]
        for each, (view, content) in zip(("name", "with"), found, strict=True):
            if not is_comparable(content["document"]):
                raise InvalidField(
                    f"{view.name} is a report of `{view.experiment}`; only reports of `matrixctl experiment run` "
                    "can be compared",
                    field=each,
                )
        (before, first), (after, second) = found
        return ReportComparisonView(
            before=before,
            after=after,
            changes=[ChangeView.model_validate(each) for each in compare(first["document"], second["document"])],
        )

    def _check_bounds(self, session: Session, name: str, size: int) -> None:
        project = project_of(name)
        others = select(func.count(), func.coalesce(func.sum(ReportRow.size_bytes), 0)).where(
            ReportRow.project == project, ReportRow.name != name
        )
        count, kept = session.execute(others).one()
        remedy = f"; delete one: matrixctl report delete NAME --project {project}"
        if count >= self._reports_max:
            raise QuotaExceeded(f"project {project} has {count} reports, its maximum{remedy}", field="name")
        if kept + size > self._bytes_max:
            raise QuotaExceeded(
                f"with the {size:,} bytes of {name_of(name)} project {project} would have {kept + size:,} bytes of "
                f"reports, more than the maximum of {self._bytes_max:,}{remedy}",
                field="document",
            )


def _read(session: Session, name: str) -> tuple[ReportView, Mapping[str, Any]]:
    view = find(session, ReportRow, name).view()
    return view, json.loads(session.get_one(ReportContentRow, name).content)
