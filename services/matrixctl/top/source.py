"""The screen's data source: a running stack, read-only."""

from __future__ import annotations

import yaml

from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.collections import get_resource, list_resources
from services.matrixctl.output.columns import cells, titles, with_projects
from services.matrixctl.output.resource_kinds import find_kind
from services.matrixctl.output.screen import full_name
from services.matrixctl.top.drawing import Rows
from services.matrixctl.top.snapshot import Snapshot, SnapshotReader


class StackSource:
    """One running stack."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._reader = SnapshotReader(client)

    def read(self) -> Snapshot:
        return self._reader.read()

    def list_kind(self, word: str) -> tuple[str, list[str], Rows]:
        """A kind's plural name, titles and rows, by any of its names. Raises InvalidField for an unknown one."""
        kind = find_kind(word)
        views = list_resources(self._client, kind)
        columns = with_projects(kind.shown(wide=False), views)
        rows = [
            (full_name(view) if view.get("name") else str(number), tuple(cells(columns, view)))
            for number, view in enumerate(views)
        ]
        return kind.name, titles(columns), rows

    def describe(self, word: str, name: str) -> str:
        """A resource as YAML. Raises NotFound."""
        return str(
            yaml.safe_dump(get_resource(self._client, find_kind(word), name), sort_keys=False, allow_unicode=True)
        )
