"""A stand-in for the services behind a console: 22 supernodes that change five times a second.

    python -m benchmarks.console.feed PORT

It answers what the gateway asks (lists as watches, capacity, planes, a matrix), with the views of real services.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import count, cycle
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from matrixresource.topology import Supernode

SUPERNODES = 22
CHANGES_HZ = 5.0
INSTANCES = 40

NODES = [(f"sn{at}", node) for at in range(SUPERNODES) for node in Supernode(f"sn{at}").nodes()]
AT = "2026-01-01T00:00:00.000Z"


def node(supernode: str, name: str, state: str) -> dict[str, Any]:
    return {
        "name": name, "project": "default", "labels": {}, "generation": 1, "etag": '"1"', "state": state,
        "conditions": [], "createdAt": AT, "updatedAt": AT, "supernode": supernode, "cabinet": name.rpartition("-")[0],
        "npus": 8, "cpus": 4, "schedulable": True, "cordonedBy": [], "power": "On", "health": "Healthy",
        "agent": "Connected", "epoch": 1, "sharedBy": 0, "usableNpus": 8, "desiredRole": "Clean",
        "assignmentGeneration": 1, "observedGeneration": 1, "message": "", "desiredState": "Available",
        "stateMessage": "", "stateSince": AT, "firmware": "emulated-1", "flapScore": 0.0, "faults": [],
    }  # fmt: skip


def allocation(at: int) -> dict[str, Any]:
    members = [{"node": name, "role": "member", "rank": rank} for rank, (_, name) in enumerate(NODES[at * 24 :][:12])]
    return {"name": f"job{at}", "project": f"team-{at % 5}", "members": members}


def instance(at: int) -> dict[str, Any]:
    return {
        "name": f"job{at}", "project": f"team-{at % 5}", "state": "Active", "conditions": [], "updatedAt": AT,
        "nodes": 12, "readyNodes": 12, "npus": 96, "spares": 0,
    }  # fmt: skip


async def generate_changes() -> AsyncIterator[bytes]:
    """Yield changes forever: at each step one node of every supernode changes its state; simultaneous changes are one
    chunk."""
    states = cycle(["Deploying", "Active", "Draining", "Available"])
    for step in count():
        await asyncio.sleep(1 / CHANGES_HZ)
        state = next(states)
        yield b"".join(
            event("MODIFIED", node(*NODES[supernode * 48 + (step // 4) % 48], state), 2)
            for supernode in range(SUPERNODES)
        )


def event(kind: str, view: dict[str, Any], version: int) -> bytes:
    return b"event: %s\ndata: %s\nid: %d\n\n" % (kind.encode(), orjson.dumps(view), version)


def list_or_watch(first: list[dict[str, Any]], live: bool = False) -> Any:
    async def stream() -> AsyncIterator[bytes]:
        for view in first:
            yield event("ADDED", view, 1)
        yield event("BOOKMARK", {}, 1)
        if live:
            async for piece in generate_changes():
                yield piece
        while True:
            await asyncio.sleep(15)
            yield event("BOOKMARK", {}, 2)

    async def answer(request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    return answer


async def capacity(request: Request) -> Response:
    domains = [{"domain": f"sn{at}", "state": "Open", "largestBlock": 24} for at in range(SUPERNODES)]
    return JSONResponse(
        {"largestBlock": {"cabinet": 4, "supernode": 24, "all": 500}, "supernodes": domains, "cabinets": []}
    )


async def planes(request: Request) -> Response:
    return JSONResponse({"items": [{"name": "ub", "linksDown": 0, "linksDegraded": 0}]})


async def matrix(request: Request) -> Response:
    supernode = request.query_params.get("supernode", "sn0")
    nodes = [name for of, name in NODES if of == supernode]
    chips = [f"p{at // 16}-k{at % 16:02}" for at in range(112)]
    shown = {
        "plane": "ub",
        "supernode": supernode,
        "nodes": nodes,
        "cabinets": [name.rpartition("-")[0] for name in nodes],
        "ports": [f"ub-{chip}" for chip in chips],
        "subPlanes": [at // 16 for at in range(112)],
        "switches": [f"{supernode}-l2{chip}" for chip in chips],
        "switchCabinets": [f"{supernode}-c{12 + at % 4}" for at in range(112)],
        "states": ["u" * 112] * len(nodes),
        "utilisation": [[at % 100 for at in range(112)]] * len(nodes),
    }
    return JSONResponse(shown)


app = Starlette(
    routes=[
        Route("/healthz", lambda request: PlainTextResponse("ok")),
        Route("/v1/nodes", list_or_watch([node(*each, "Available") for each in NODES], live=True)),
        Route("/v1/allocations", list_or_watch([allocation(at) for at in range(INSTANCES)])),
        Route("/v1/instances", list_or_watch([instance(at) for at in range(INSTANCES)])),
        Route("/v1/events", list_or_watch([])),
        Route("/v1/capacity", capacity),
        Route("/v1/planes", planes),
        Route("/v1/planes/ub/matrix", matrix),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
