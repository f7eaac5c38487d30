"""The screen's data source: a running stack, read-only."""

from __future__ import annotations

import yaml

from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.collections import every, one
from services.matrixctl.output.columns import cells, titles, with_projects
from services.matrixctl.output.resource_kinds import noun_of
from services.matrixctl.output.screen import full_name
from services.matrixctl.top.drawing import Rows
from services.matrixctl.top.snapshot import Reader, Snapshot


class StackSource:
    """One running stack."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._reader = Reader(client)

    def read(self) -> Snapshot:
        return self._reader.read()

    def listed(self, word: str) -> tuple[str, list[str], Rows]:
        """A kind's plural name, titles and rows, by any of its names. Raises InvalidField for an unknown one."""
        kind = noun_of(word)
        views = every(self._client, kind)
        columns = with_projects(kind.shown(wide=False), views)
        rows = [
            (full_name(view) if view.get("name") else str(number), tuple(cells(columns, view)))
            for number, view in enumerate(views)
        ]
        return kind.name, titles(columns), rows

    def described(self, word: str, name: str) -> str:
        """A resource as YAML. Raises NotFound."""
        return str(yaml.safe_dump(one(self._client, noun_of(word), name), sort_keys=False, allow_unicode=True))
