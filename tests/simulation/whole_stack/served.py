"""CloudMatrix-Infer as one more process of the simulated stack, as far as MatrixCompute sees it: what is served on which
instance, the work that comes in, nodes that drain, and how large pools are to be.

The real service with its engine would cost more than all the others together, and what it does is judged elsewhere. This
one keeps the same promises: it follows the fabric of its instance, says nothing of a load before it was measured, drains
in a time of its own, refuses to be scaled to zero while something comes in, and remembers across its deaths.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from matrixcommon.model.errors import Conflict, MatrixError, NotFound
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import key_of, name_of, project_of
from matrixcompute.autoscaling.decision import WINDOW_S

START_S, STAYS_S, DRAINS_S = 5.0, 6.0, 8.0
"""How long a node takes from being there to serving, a request stays, and a node drains."""
MEASURED_S = 4.0
"""What comes in is known after so long; as stages of nodes are, it is quicker than it would be."""
PREFILL_SHARE = 0.4
BACKLOG_S_MAX = 600.0
"""Of one node; who waited for longer has given up."""


@dataclass
class ServedModel:
    """What is served on one instance. `load`: the work that comes in, in nodes."""

    key: str
    load: float
    since: float
    looked_at: float
    nodes: list[str] = field(default_factory=list)
    fabric_generation: int = 0
    backlog_s: float = 0.0
    idle_since: float | None = None
    drain: dict[str, Any] | None = None
    drained_at: float = 0.0
    scale: dict[str, Any] | None = None

    @property
    def parked(self) -> bool:
        return self.scale is not None and not self.scale["prefillNodes"]

    @property
    def drained(self) -> set[str]:
        return set(self.drain["nodes"]) if self.drain is not None else set()

    @property
    def ready(self) -> list[str]:
        return [] if self.parked else [node for node in self.nodes if node not in self.drained]

    @property
    def state(self) -> str:
        if self.parked:
            return "Idle"
        return "Serving" if self.ready else "Unavailable"

    def look(self, now: float, nodes: Sequence[str], fabric_generation: int) -> None:
        """Time has passed, and nodes have come or gone."""
        passed_s = max(0.0, now - self.looked_at)
        self.backlog_s += (self.load - len(self.ready)) * passed_s
        self.backlog_s = min(max(0.0, self.backlog_s), BACKLOG_S_MAX)
        if not self.nodes and nodes:
            self.since = now
        self.nodes, self.fabric_generation, self.looked_at = list(nodes), fabric_generation, now
        idle = not self.load and not self.backlog_s
        self.idle_since = (now if self.idle_since is None else self.idle_since) if idle else None

    def view(self, now: float) -> dict[str, Any]:
        prefill = (
            self.scale["prefillNodes"] if self.scale is not None else max(1, round(PREFILL_SHARE * len(self.nodes)))
        )
        roles = {node: "prefill" if at < prefill else "decode" for at, node in enumerate(self.ready)}
        drain = None
        if self.drain is not None:
            drained = now >= self.drained_at or not {*self.nodes} & self.drained
            requests = 0 if drained else len(self.drained)
            drain = self.drain | {"state": "Drained" if drained else "Draining", "requests": requests}
        return {
            "name": name_of(self.key), "project": project_of(self.key), "instance": name_of(self.key),
            "state": self.state, "roles": roles, "readyNodes": self.ready, "drain": drain, "scale": self.scale,
            "fabricGeneration": self.fabric_generation,
        }  # fmt: skip

    def statistics(self, now: float) -> dict[str, Any]:
        measured = bool(self.nodes) and now - self.since >= MEASURED_S
        idle_s = 0.0 if self.idle_since is None else now - self.idle_since
        waits = int(self.parked and self.load > 0)
        shown: dict[str, Any] = {
            "state": self.state, "measuredS": WINDOW_S if measured else 0.0, "idleS": idle_s, "activationQueue": waits,
            "queued": self.backlog_s / STAYS_S,
        }  # fmt: skip
        if measured and self.ready:
            shown["work"] = {
                "nodes": self.load, "backlogNodeSeconds": self.backlog_s, "startS": START_S, "staysS": STAYS_S,
                "prefillNodes": PREFILL_SHARE * self.load, "decodeNodes": (1 - PREFILL_SHARE) * self.load,
                "prefillBacklogNodeSeconds": self.backlog_s, "promptS": 0.5, "cachingNodes": 1.0,
                "prefillInstanceNodes": 1, "decodeNodesMin": 1,
            }  # fmt: skip
        return shown


Fabric = Callable[[str], Awaitable[tuple[list[str], int] | None]]
"""The nodes of an instance that are reached, and the generation of its fabric; None where nobody says."""


class ServedModels:
    """All of them, by the keys of their instances, for as long as the stack lives: `now` is its process's clock, and
    `fabric` is what it knows of instances."""

    now: Callable[[], float]
    fabric: Fabric

    def __init__(self) -> None:
        self.of: dict[str, ServedModel] = {}
        self.asgi = Starlette(
            routes=[
                Route("/v1/deployments", self._list),
                Route("/v1/deployments/{name}", self._read),
                Route("/v1/deployments/{name}/statistics", self._statistics),
                Route("/v1/deployments/{name}/drain", self._drain, methods=["PUT"]),
                Route("/v1/deployments/{name}/drain", self._undrain, methods=["DELETE"]),
                Route("/v1/deployments/{name}/scale", self._scale, methods=["PUT"]),
                Route("/v1/deployments/{name}/scale", self._unscale, methods=["DELETE"]),
            ],
            exception_handlers={MatrixError: _problem},
        )

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        yield

    def serve(self, key: str, load: float) -> None:
        """Have a model served there, with so much work that comes in; it may be served already."""
        now = self.now()
        self.of.setdefault(key, ServedModel(key, load, now, now)).load = load

    def left(self) -> list[str]:
        """What was asked of them by operations and policies that should have taken it back."""
        found = [
            f"{key} drains for {each.drain['by']}" for key, each in self.of.items() if each.drain and each.drain["by"]
        ]
        return found + [f"{key} is scaled by {each.scale['by']}" for key, each in self.of.items() if each.scale]

    async def _found(self, request: Request) -> ServedModel:
        key = key_of(request.query_params.get("project") or "default", request.path_params["name"])
        if (model := self.of.get(key)) is None:
            raise NotFound(f"there is no deployment {key}")
        await self._look(model)
        return model

    async def _look(self, model: ServedModel) -> None:
        found = await self.fabric(model.key)
        nodes, generation = found if found is not None else (model.nodes, model.fabric_generation)
        model.look(self.now(), nodes, generation)

    async def _list(self, request: Request) -> Response:
        for model in self.of.values():
            await self._look(model)
        return JSONResponse({"items": [each.view(self.now()) for each in self.of.values()], "resourceVersion": "1"})

    async def _read(self, request: Request) -> Response:
        return JSONResponse((await self._found(request)).view(self.now()))

    async def _statistics(self, request: Request) -> Response:
        return JSONResponse((await self._found(request)).statistics(self.now()))

    async def _drain(self, request: Request) -> Response:
        model, asked, now = await self._found(request), json.loads(await request.body()), self.now()
        by, nodes = asked.get("by", ""), sorted(asked["nodes"])
        current = model.drain
        if current is not None and current["by"] != by and current["by"]:
            raise Conflict(f"{current['by']} drains {', '.join(current['nodes'])}")
        if current is None or current["nodes"] != nodes or current["by"] != by:
            deadline_s = asked.get("deadlineS", 600.0)
            model.drained_at = now + min(DRAINS_S, deadline_s)
            began = len({*nodes} & {*model.nodes})
            model.drain = {
                "nodes": nodes, "by": by, "deadlineAt": timestamp(now + deadline_s), "requestsAtStart": began
            }  # fmt: skip
        return JSONResponse(model.view(now))

    async def _undrain(self, request: Request) -> Response:
        (await self._found(request)).drain = None
        return Response(status_code=204)

    async def _scale(self, request: Request) -> Response:
        model, asked = await self._found(request), json.loads(await request.body())
        if not asked["prefillNodes"] and (model.load or model.backlog_s):
            raise Conflict("requests run")
        model.scale = {"cachingNodes": None, **asked, "state": "Settled", "requests": 0}
        return JSONResponse(model.view(self.now()))

    async def _unscale(self, request: Request) -> Response:
        (await self._found(request)).scale = None
        return Response(status_code=204)


async def _problem(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, MatrixError)
    return JSONResponse(refused.problem() | {"requestId": "simulated"}, refused.status)
