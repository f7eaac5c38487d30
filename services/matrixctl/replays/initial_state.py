"""The start of a replay on real processes: a folder in which nothing would be lost, set up from the recording's
snapshot."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import Conflict
from matrixresource.topology.versions import is_valid_on
from services.catalogue import PROCESSES
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.output.screen import full_name
from services.matrixctl.snapshots.snapshot import restore
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.recordings.journals import SERVICES, revisions
from services.recordings.recording import About
from services.snapshots import archive

OCCUPYING_COLLECTIONS = {
    "compute": "instances",
    "resource": "allocations",
    "link": "slices",
    "infer": "deployments",
    "agents": "faults",
}
"""Collections that are empty on an unused stack, by service."""
BLOCKING_SHOWN_MAX = 5


def prepare_stack(folder: StateFolder, file: Path, about: About) -> tuple[StackRequest, dict[str, int]]:
    """How to start a stack in the recording's initial state, and the newest change of each service until then.

    An empty stack in that folder is replaced. Raises Conflict if it is not empty, has another topology, or keeps its
    state elsewhere; UnknownSnapshot if the recording has an unknown schema.
    """
    archive.check_schemas(archive.read_manifest(file))
    _check_unused(folder, file)
    _, request = restore(folder, file)
    known = revisions(folder.path)
    return (
        replace(request, processes=PROCESSES, scale=about.time_scale, seed=about.seed),
        {name: known.get(name, 0) for name in SERVICES},
    )


def _check_unused(folder: StateFolder, file: Path) -> None:
    before = folder.read()
    if before is not None and (before.contained or before.database):
        raise Conflict(f"a replay reads SQLite files, and the stack in {folder.path} has none: name another folder")
    if folder.supervisor() is None:
        if any(folder.path.glob("*.db")):
            raise Conflict(
                f"{folder.path} has the state of a stopped stack: empty it with `matrixctl reset --state "
                f"{folder.path}`, or name another folder"
            )
        return
    client = ApiClient.of(folder)
    if found := list(_existing_resources(client)):
        raise Conflict(
            f"the stack in {folder.path} is not empty: empty it with `matrixctl reset --state {folder.path}`, or name "
            "another folder",
            blocking=found[:BLOCKING_SHOWN_MAX],
        )
    current, recorded = _topology_of(client), _recorded_topology(file)
    if not (is_valid_on(current, recorded) and is_valid_on(recorded, current)):  # none is like none alone
        raise Conflict(
            f"the stack in {folder.path} has another topology ({current or 'none'}) than the recording "
            f"({recorded or 'none'}): name a folder without a stack"
        )


def _existing_resources(client: ApiClient) -> list[dict[str, Any]]:
    return [
        {"kind": kind.removesuffix("s"), "name": full_name(each)}
        for service, kind in OCCUPYING_COLLECTIONS.items()
        if service in client.stack.children
        for each in client.list(service, f"/v1/{kind}")
    ]


def _topology_of(client: ApiClient) -> str:
    """The newest topology version, which every supernode shows."""
    found = client.list("resource", "/v1/supernodes") if "resource" in client.stack.children else []
    return str(found[0]["topologyVersion"]) if found else ""


def _recorded_topology(file: Path) -> str:
    with tempfile.TemporaryDirectory() as place:
        archive.extract(file, Path(place))
        database = Path(place) / "resource.db"
        if not database.exists():
            return ""
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT name FROM topology_head").fetchone()
    return str(found[0]) if found else ""
