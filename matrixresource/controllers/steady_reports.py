"""What nodes reported last, where judging the same report again would change nothing.

Agents report on a period, and nearly every report says what the one before it did. Of such a report only the lease is
new, so it is not judged again: not before the agent says something else or the node's row changes, by whomever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matrixcommon.persistence.database_session import Database
from matrixresource.contract.agents import NodeReport
from matrixresource.store.tables import NodeRow


class SteadyReports:
    """By node, what was reported and the version of the node's row that it left as it was. Used inside transactions."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    def among(self, reports: Iterable[NodeReport], nodes: dict[str, NodeRow]) -> set[str]:
        """The nodes whose report of these says nothing that is not known. `nodes`: those that exist, by name."""
        found = set()
        for report in reports:
            known = self._known.get(report.node)
            node = nodes.get(report.node)
            if known is not None and node is not None and known == (node.version, _content(report)):
                found.add(node.name)
        return found

    def add(self, judged: Iterable[tuple[NodeRow, int, NodeReport]]) -> None:
        """Reports were judged, by all that is on a row, which was of that version; one counts if its row still is."""
        self._records.on_rollback(self._known.clear)  # numbers of versions that came to nothing are given again
        for node, version, report in judged:
            if node.version == version:
                self._known[node.name] = version, _content(report)


def _content(report: NodeReport) -> dict[str, Any]:
    return {**vars(report), "sequence": None}
