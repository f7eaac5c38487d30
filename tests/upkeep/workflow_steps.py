"""The workflows of every service, and every name that a step of one ever had: something may be at it when a service is
upgraded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matrixcommon.workflows.host import Host
from matrixcommon.workflows.workflow import Workflow
from matrixcompute.operations.context import InstanceHost
from matrixcompute.workflows.definitions import WORKFLOWS
from matrixlink.maintenance import drain_workflow
from matrixresource.defragmentation import workflows as rooms

FILE = "tests/golden/workflow-steps.json"


def tables() -> dict[type[Host[Any, Any]], dict[str, Workflow[Any]]]:
    """The workflows of each service by verb, with the host that says what they carry."""
    return {
        InstanceHost: WORKFLOWS,
        drain_workflow.DrainHost: drain_workflow.WORKFLOWS,
        rooms.DefragmentationHost: rooms.WORKFLOWS,
    }


def every() -> Iterator[tuple[type[Host[Any, Any]], Workflow[Any]]]:
    for host, workflows in tables().items():
        for workflow in workflows.values():
            yield host, workflow


def ever() -> dict[str, list[str]]:
    """The names of steps by workflow, of this release and of those before."""
    path = Path(__file__).resolve().parents[2] / FILE
    found: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def printed() -> str:
    """What was there before stays: a name goes from the table of workflows, never from here."""
    before = ever()
    names = {each.verb: sorted({*before.get(each.verb, ()), *each.names}) for _, each in every()}
    return json.dumps(dict(sorted((before | names).items())), indent=2) + "\n"


def definitions() -> str:
    """What each workflow is by its hash: its steps with what undoes them, and the schema of what it carries. A change
    here is a change for what is under way at an upgrade."""
    shown = {
        each.verb: {
            "definition": each.definition(host.payload),
            "steps": {step.name: step.undo.__name__ if step.undo is not None else None for step in each.steps},
            "committedAt": each.committed_at,
            "retired": dict(each.retired_steps),
            "payload": (host.payload or {}).get("title"),
        }
        for host, each in every()
    }
    payloads = {str(host.payload["title"]): host.payload for host in tables() if host.payload is not None}
    return json.dumps({"workflows": shown, "payloads": payloads}, indent=2, sort_keys=True) + "\n"
