"""A machine for pictures: two instances, a load, a node that has just lost its power, in virtual time.

What the console would be told of it is written down: the live picture, and the answer to each request that its pages make.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from services.chassis.access import create_token
from services.console import main as console
from services.console.live.broadcast import Broadcast
from services.console.live.collector import Collector
from services.console.live.picture import Picture
from services.node_agent.network.traffic_patterns import Load
from services.testing.virtual_time import run_in_virtual_time
from tests.golden import ROOT
from tests.stack import Stack

FILE = ROOT / "tests" / "golden" / "console" / "machine.json"
INSTANCE = "deepseek-r1"
WALL_S = 1_767_225_600.0
"""The browser's clock stands there; emulated time is what it was in the machine."""
OPERATIONS = "/v1/operations?filter=target%3D{name}&orderBy=startedAt%20desc&pageSize=12&project=default"
ASKED = (
    ("link", "/v1/planes/ub/matrix?supernode=sn0"),
    ("compute", f"/v1/instances/{INSTANCE}?project=default"),
    ("compute", OPERATIONS.format(name=INSTANCE)),
)


@dataclass
class Recorded:
    """What the console's pages are told: the picture, and answers by what comes after `/api/`."""

    picture: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)


@cache
def recorded() -> Recorded:
    """What was written down."""
    return Recorded(**json.loads(FILE.read_text("utf-8")))


def record() -> None:
    """Live that life, and write down what the console is told at its end."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(asdict(lived()), indent=1, sort_keys=True) + "\n", "utf-8")


def lived() -> Recorded:
    """The machine at the end of its life. The same each time."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in_virtual_time(lambda: _live(Path(folder)))


async def _live(folder: Path) -> Recorded:
    async with Stack(folder, tokens=True) as stack:
        await stack.apply("search", 12, placement={"policy": "spread", "level": "cabinet"})
        await stack.active("search", 12)
        await stack.apply(INSTANCE, 16, spares=1)
        view = await stack.active(INSTANCE, 16)
        assert stack.fleet is not None
        stack.fleet.traffic.put("decode", Load(slice=f"{INSTANCE}-ub", pattern="all-to-all", gbps_per_npu=20.0))
        stack.impair("chip", "switch-down", "sn0-l2p3-k11")
        stack.impair("worn", "npu-fault", "sn0-c10-n2", npu=5, die=0)
        await asyncio.sleep(60)
        stack.impair("dark", "node-down", view.members[5].node)

        async def repairing() -> bool:
            seen = await stack.compute.find_instance(INSTANCE)
            return seen is not None and seen.state == "Repairing" and bool(seen.operation)

        await stack.until(repairing, "the repair has begun", within_s=300)
        await asyncio.sleep(20)
        return await _recorded(stack)


async def _recorded(stack: Stack) -> Recorded:
    assert stack.tokens is not None
    token = create_token(stack.tokens, "console", "*", "viewer")
    settings = console.ConsoleSettings(tokens=stack.tokens, token=token)
    http = {
        name: console.http_client(url, token, stack.slots[name].transport)
        for name, url in settings.urls().items()
        if name in stack.slots
    }
    found = Recorded()
    for service, path in ASKED:
        answer = await http[service].get(path)
        assert answer.status_code == 200, (path, answer.text)
        found.answers[f"{service}{path}"] = answer.json()
    known = Collector({**dict.fromkeys(settings.urls(), http["resource"]), **http}, stack.clock)
    Broadcast(known)
    running = [asyncio.create_task(work()) for work in known.tasks()]

    async def complete() -> bool:
        return bool(known.capacity and known.planes and len(known.nodes.items) == 48 and known.events["compute"].items)

    await stack.until(complete, "the console knows all", within_s=60)
    await asyncio.sleep(2)
    found.picture = Picture(known, "*").document()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    found.picture["time"] = {"scale": 60.0, "wall": WALL_S, "emulated": stack.clock.now()}
    found.picture["services"] = dict.fromkeys(found.picture["services"], True)
    found.picture["alerts"] = {
        key: alert for key, alert in found.picture["alerts"].items() if alert["kind"] != "service"
    }
    return found
