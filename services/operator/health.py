"""/healthz, /readyz and /metrics of the operator, on the HTTP library that Kopf already brings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from aiohttp import web

from services.chassis.periodic import Periodic


async def serve_health(
    host: str, port: int, ready: Callable[[], str | None], watchers: Sequence[Periodic]
) -> web.AppRunner:
    """Listen until the runner is cleaned up."""

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(request: web.Request) -> web.Response:
        waiting = ready()
        body = json.dumps({"ready": waiting is None, "waitingFor": waiting})
        return web.Response(
            text=body,
            status=200 if waiting is None else 503,
            content_type="application/json",
            headers={"X-Process-Id": str(os.getpid())},
        )

    async def metrics(request: web.Request) -> web.Response:
        lines = ["# TYPE watcher_runs gauge", *(f'watcher_runs{{watcher="{w.name}"}} {w.runs}' for w in watchers)]
        lines += ["# TYPE watcher_failures gauge"]
        lines += [f'watcher_failures{{watcher="{w.name}"}} {w.failures}' for w in watchers]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
