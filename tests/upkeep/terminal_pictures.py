"""Pictures of the terminal for the documentation: what matrixctl prints of a stack in virtual time, as SVG.

The same stack lives the same life each time: two instances, a load, and a node that has just lost its power.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rich.console import Console

from matrixcommon.model.quantities import timestamp
from services.matrixctl.commands.capacity.allocation_options import AllocationOptions
from services.matrixctl.commands.capacity.plan import show_answer
from services.matrixctl.output import screen
from services.matrixctl.supervisor.state_folder import StackTime
from services.matrixctl.top.drawing import render_once
from services.matrixctl.top.snapshot import LINKS, Snapshot, SnapshotReader
from services.node_agent.network.traffic_patterns import Load
from services.testing.virtual_time import run_in_virtual_time
from tests.stack import Stack

COLUMNS = 100
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
PLAN = AllocationOptions(nodes=4, required=True)


def top() -> str:
    """`matrixctl top --once`."""
    snapshot, _ = life()
    return _picture(
        "matrixctl top", lambda console: [console.print(line) for line in render_once(snapshot, COLUMNS, False)]
    )


def plan() -> str:
    """`matrixctl plan --nodes 4 --required`, refused."""
    _, answer = life()

    def show(console: Console) -> None:
        with patch.object(screen, "console", lambda: console):
            show_answer(answer)

    return _picture("matrixctl plan --nodes 4 --required", show)


def _picture(title: str, show: Callable[[Console], object]) -> str:
    with Path("/dev/null").open("w") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, color_system="truecolor", force_terminal=True, highlight=False
        )
        show(console)
    # Rich has readers fetch its font from the network; any font of one width does.
    return FONT_FACE.sub("", console.export_svg(title=title)).replace("Fira Code, monospace", "monospace")


@cache
def life() -> tuple[Snapshot, dict[str, Any]]:
    """What `top` reads and what `plan` answers at the end of it."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in_virtual_time(lambda: _live(Path(folder)))


async def _live(folder: Path) -> tuple[Snapshot, dict[str, Any]]:
    async with Stack(folder) as stack:
        await stack.apply("search", 12, placement={"policy": "spread", "level": "cabinet"})
        await stack.active("search", 12)
        await stack.apply("deepseek-r1", 16, spares=1)
        view = await stack.active("deepseek-r1", 16)
        assert stack.fleet is not None
        stack.fleet.traffic.put("decode", Load(slice="deepseek-r1-ub", pattern="all-to-all", gbps_per_npu=20.0))
        await asyncio.sleep(60)
        lost = view.members[5].node
        stack.impair("dark", "node-down", lost)

        async def noticed() -> bool:
            seen = await stack.compute.find_instance("deepseek-r1")
            return seen is not None and seen.state == "Repairing"

        await stack.until(noticed, "the loss is noticed", within_s=300)
        client = await _fetched(stack)
        snapshot = replace(SnapshotReader(client).read_from(client), emulated_time=timestamp(stack.clock.now()))
        body = PLAN.request(preemption="", leaseS=None, topologyVersion="")
        answer = await stack.http["resource"].post("/v1/plans", json=body)
        return snapshot, answer.json()


ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("resource", "/v1/nodes", {"pageSize": 1000}),
    ("resource", "/v1/npus", {"pageSize": 1000}),
    ("resource", "/v1/capacity", {}),
    ("compute", "/v1/instances", {"orderBy": "name"}),
    ("compute", "/v1/events", {"orderBy": "at desc"}),
    ("compute", "/v1/faults", {}),
    ("link", "/v1/telemetry", {"by": "link", "top": LINKS}),
)


async def _fetched(stack: Stack) -> Any:
    """A client that knows every answer already: matrixctl's own waits, and would stop the loop that it asks."""
    known = {}
    for service, path, params in ASKED:
        answer = await stack.http[service].get(path, params=params)
        assert answer.status_code == 200, answer.text
        known[path] = answer.json()

    def call(_service: str, _method: str, path: str, params: object = None) -> Any:
        return known[path]

    def every(_service: str, path: str, params: dict[str, Any] | None = None) -> Any:
        _, _, node = str((params or {}).get("filter", "")).partition("node=")
        return [each for each in known[path]["items"] if not node or each["node"] == node]

    running = SimpleNamespace(children=dict.fromkeys(stack.services), time=StackTime(60.0, 0.0, 0.0))
    return SimpleNamespace(call=call, list=every, stack=running)
