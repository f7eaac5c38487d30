"""Remembers the reports that would change nothing if they were processed again.

Agents report periodically, and nearly every report repeats the previous one. Such a report only renews the lease. It is
not processed again until the agent says something else or the node's row is changed, by anyone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matrixcommon.persistence.database_session import Database
from matrixresource.contract.agents import NodeReport
from matrixresource.store.tables import NodeRow


class SteadyReports:
    """By node, the last report and the version of the node's row that it left unchanged. Used inside transactions."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._last_reports: dict[str, tuple[int, dict[str, Any]]] = {}

    def repeated_nodes(self, reports: Iterable[NodeReport], nodes: dict[str, NodeRow]) -> set[str]:
        """The nodes whose report is a repetition. `nodes`: those that exist, by name."""
        found = set()
        for report in reports:
            known = self._last_reports.get(report.node)
            node = nodes.get(report.node)
            if known is not None and node is not None and known == (node.version, _content(report)):
                found.add(node.name)
        return found

    def add(self, reports: Iterable[tuple[NodeRow, int, NodeReport]]) -> None:
        """Remember reports that were judged by the row alone, which was at that version; each counts if its row still
        is."""
        self._records.on_rollback(
            self._last_reports.clear
        )  # version numbers of a rolled-back transaction are used again
        for node, version, report in reports:
            if node.version == version:
                self._last_reports[node.name] = version, _content(report)


def _content(report: NodeReport) -> dict[str, Any]:
    return {**vars(report), "sequence": None}
