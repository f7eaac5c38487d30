"""CloudMatrix-Infer over HTTP: deployments, their statistics, caches, built-in load, drains and sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from infer_workload.contract.caches import ContextCacheView, ModelCacheView, WarmRequest, WarmView
from infer_workload.contract.deployments import DeploymentRequest, DeploymentView
from infer_workload.contract.load import LoadRequest, LoadView
from infer_workload.contract.roles import DrainRequest, ScaleRequest
from infer_workload.contract.statistics import StatisticsView
from infer_workload.serving.access import DEPLOYMENTS, STUCK
from infer_workload.serving.caches import EXPORT_PAGE_MAX, export, model_cache_view, warm
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.live.statistics import WINDOW_S
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics_view import statistics_of
from infer_workload.serving.status import stuck_deployments
from infer_workload.serving.work import TPOT_OBJECTIVE_S
from matrixcommon.api.authorization import Caller
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.resource_key import name_of

WINDOW_S_MAX = 600.0

FindLive = Callable[..., LiveDeployment]
"""Return the live deployment of a key; raises NotFound."""


def routes(serving: Serving) -> APIRouter:
    """The routes over one `Serving`."""
    api = ResourceRoutes(serving.store.records)
    deployments = api.of(DEPLOYMENTS)
    live = partial(_live, serving)
    _specs(deployments, serving)
    _statistics(deployments, serving, live)
    _caches(deployments, serving, live)
    _load(deployments, serving, live)
    _nodes(deployments, serving, live)
    api.of(STUCK).list(
        lambda: stuck_deployments(serving.store, serving.clock.now()),
        description="Deployments that have been loading, or rebuilding ranks, for longer than their deadline.",
    )
    return api.router


def _specs(deployments: KindRoutes, serving: Serving) -> None:
    deployments.list()
    deployments.get(serving.view)

    @deployments.change("PUT")
    async def ensure(name: str, body: DeploymentRequest, validate_only: bool = False) -> DeploymentView:
        return serving.ensure(name, await serving.resolve_machine(name, body), validate_only=validate_only)

    @deployments.change("DELETE")
    async def delete(name: str, validate_only: bool = False) -> None:
        serving.delete(name, validate_only)


def _statistics(deployments: KindRoutes, serving: Serving, live: FindLive) -> None:
    @deployments.ask("GET /statistics")
    async def statistics(
        name: str,
        window_s: Annotated[
            float, Query(alias="windowS", ge=1, le=WINDOW_S_MAX, description="emulated seconds")
        ] = WINDOW_S,
        tpot_s: Annotated[
            float,
            Query(alias="tpotS", gt=0, le=10, description="objective for time per token that `work` assumes, s"),
        ] = TPOT_OBJECTIVE_S,
    ) -> StatisticsView:
        return statistics_of(live(name), serving.clock.now(), window_s, tpot_s)


def _caches(deployments: KindRoutes, serving: Serving, live: FindLive) -> None:
    @deployments.ask("GET /context-cache")
    async def get_context_cache(
        name: str,
        page_size: Annotated[int, Query(alias="pageSize", ge=1, le=EXPORT_PAGE_MAX)] = EXPORT_PAGE_MAX,
        page_token: Annotated[str | None, Query(alias="pageToken")] = None,
    ) -> ContextCacheView:
        """The context cache and its blocks, the most recently used first, for import into another deployment."""
        return export(live(name), page_size, page_token)

    @deployments.change("POST :warm", allowed=live)
    async def warm_context_cache(name: str, body: WarmRequest, validate_only: bool = False) -> WarmView:
        """Import blocks exported from another context cache, as far as they are on nodes that cache here."""
        return warm(live(name), body, validate_only=validate_only)

    @deployments.ask("GET /model-cache")
    async def get_model_cache(name: str) -> ModelCacheView:
        """The models in the cache, their tier, and how long this deployment's dies take to load each."""
        return model_cache_view(live(name), serving.models)


def _load(deployments: KindRoutes, serving: Serving, live: FindLive) -> None:
    @deployments.ask("GET /load")
    async def get_load(name: str) -> LoadView:
        found = live(name)
        if found.load is None:
            raise NotFound(f"{name_of(name)} has no built-in load", field="name")
        return found.load

    @deployments.change("PUT /load", allowed=live)
    async def put_load(name: str, body: LoadRequest, validate_only: bool = False) -> DeploymentView:
        return serving.start_load_generator(name, body, validate_only=validate_only)

    @deployments.change("DELETE /load", allowed=live)
    async def delete_load(name: str, validate_only: bool = False) -> None:
        serving.start_load_generator(name, None, validate_only=validate_only)


def _nodes(deployments: KindRoutes, serving: Serving, live: FindLive) -> None:
    """The routes for drains and pool sizes."""

    @deployments.change("PUT /drain", allowed=live)
    async def put_drain(name: str, body: DrainRequest, validate_only: bool = False) -> DeploymentView:
        """Drain these nodes: nothing new begins there, and they leave once idle, or at the deadline."""
        return serving.drain(name, body, validate_only=validate_only)

    @deployments.change("DELETE /drain", allowed=live)
    async def delete_drain(name: str, validate_only: bool = False) -> None:
        """Withdraw the drain and use its nodes again."""
        serving.drain(name, None, validate_only=validate_only)

    @deployments.change("PUT /scale", allowed=live)
    async def put_scale(name: str, body: ScaleRequest, validate_only: bool = False) -> DeploymentView:
        """Scale the pools to these sizes; nodes change role once idle, or at the deadline."""
        return serving.rescale(name, body, validate_only=validate_only)

    @deployments.change("DELETE /scale", allowed=live)
    async def delete_scale(name: str, validate_only: bool = False) -> None:
        """Scale the pools back to the sizes of the spec."""
        serving.rescale(name, None, validate_only=validate_only)


def _live(serving: Serving, name: str, caller: Caller | None = None) -> LiveDeployment:
    """The live deployment of that key. Raises NotFound."""
    live = serving.live.get(name)
    if live is None:
        raise NotFound(f"deployment {name[:80]!r} does not exist", field="name")
    return live
