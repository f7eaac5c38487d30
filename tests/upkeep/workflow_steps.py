"""Every name that a step of a workflow ever had: an instance may be at it when MatrixCompute is upgraded."""

from __future__ import annotations

import json
from pathlib import Path

from matrixcompute.workflows.definitions import WORKFLOWS

FILE = "tests/golden/workflow-steps.json"


def ever() -> dict[str, list[str]]:
    """The names of steps by workflow, of this release and of those before."""
    path = Path(__file__).resolve().parents[2] / FILE
    found: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def printed() -> str:
    """What was there before stays: a name goes from the table of workflows, never from here."""
    before = ever()
    names = {verb: sorted({*before.get(verb, ()), *workflow.names}) for verb, workflow in WORKFLOWS.items()}
    return json.dumps(dict(sorted((before | names).items())), indent=2) + "\n"
