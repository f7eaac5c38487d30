"""CloudMatrix-Infer over HTTP: deployments, what they do, their built-in load, and who used how much."""

from __future__ import annotations

from math import isfinite
from typing import Annotated

from fastapi import APIRouter, Query

from infer_workload.contract import (
    ContextCacheView,
    DeploymentRequest,
    DeploymentView,
    DrainRequest,
    LoadRequest,
    LoadView,
    ModelCacheView,
    Sample,
    ScaleRequest,
    StatisticsView,
    WarmRequest,
    WarmView,
)
from infer_workload.engine.request import DECODING, PREFILLING, TRANSFERRING
from infer_workload.serving.access import DEPLOYMENTS, STUCK
from infer_workload.serving.caches import EXPORT_PAGE_MAX, export, model_cache_view, warm
from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics import WINDOW_S, percentiles
from infer_workload.serving.status import stuck_deployments
from infer_workload.serving.work import TPOT_OBJECTIVE_S, work_of
from matrixcommon.api.authorization import Caller
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.resource_key import name_of

WINDOW_S_MAX = 600.0


def routes(serving: Serving) -> APIRouter:
    """The routes over one `Serving`."""
    store = serving.store
    api = ResourceRoutes(store.records)
    deployments = api.of(DEPLOYMENTS)

    def lives(name: str, caller: Caller | None = None) -> LiveDeployment:
        live = serving.live.get(name)
        if live is None:
            raise NotFound(f"there is no deployment named {name[:80]!r}", field="name")
        return live

    deployments.list()
    deployments.get(serving.view)

    @deployments.change("PUT")
    async def ensure(name: str, body: DeploymentRequest, validate_only: bool = False) -> DeploymentView:
        return serving.ensure(name, await serving.on_its_machine(name, body), validate_only=validate_only)

    @deployments.change("DELETE")
    async def delete(name: str, validate_only: bool = False) -> None:
        serving.delete(name, validate_only)

    @deployments.ask("GET /statistics")
    async def statistics(
        name: str,
        window_s: Annotated[
            float, Query(alias="windowS", ge=1, le=WINDOW_S_MAX, description="emulated seconds")
        ] = WINDOW_S,
        tpot_s: Annotated[
            float, Query(alias="tpotS", gt=0, le=10, description="the objective for a token that `work` is for, s")
        ] = TPOT_OBJECTIVE_S,
    ) -> StatisticsView:
        return statistics_of(lives(name), serving.clock.now(), window_s, tpot_s)

    @deployments.ask("GET /context-cache")
    async def get_context_cache(
        name: str,
        page_size: Annotated[int, Query(alias="pageSize", ge=1, le=EXPORT_PAGE_MAX)] = EXPORT_PAGE_MAX,
        page_token: Annotated[str | None, Query(alias="pageToken")] = None,
    ) -> ContextCacheView:
        """The context cache and its blocks, the latest used first: what another deployment may begin with."""
        return export(lives(name), page_size, page_token)

    @deployments.change("POST :warm", allowed=lives)
    async def warm_context_cache(name: str, body: WarmRequest, validate_only: bool = False) -> WarmView:
        """Begin with blocks that another context cache held, as far as they lie on nodes that cache here."""
        return warm(lives(name), body, validate_only=validate_only)

    @deployments.ask("GET /model-cache")
    async def get_model_cache(name: str) -> ModelCacheView:
        """Which models the pool keeps, where, and what it takes to have each on the dies of this deployment."""
        return model_cache_view(lives(name), serving.models)

    @deployments.ask("GET /load")
    async def get_load(name: str) -> LoadView:
        live = lives(name)
        if live.load is None:
            raise NotFound(f"{name_of(name)} plays no built-in load", field="name")
        return live.load

    @deployments.change("PUT /load", allowed=lives)
    async def put_load(name: str, body: LoadRequest, validate_only: bool = False) -> DeploymentView:
        return serving.start_load_generator(name, body, validate_only=validate_only)

    @deployments.change("DELETE /load", allowed=lives)
    async def delete_load(name: str, validate_only: bool = False) -> None:
        serving.start_load_generator(name, None, validate_only=validate_only)

    @deployments.change("PUT /drain", allowed=lives)
    async def put_drain(name: str, body: DrainRequest, validate_only: bool = False) -> DeploymentView:
        """Begin nothing more on these nodes, and leave them when nothing runs there, or at the deadline."""
        return serving.drain(name, body, validate_only=validate_only)

    @deployments.change("DELETE /drain", allowed=lives)
    async def delete_drain(name: str, validate_only: bool = False) -> None:
        """Use the nodes again that were to leave."""
        serving.drain(name, None, validate_only=validate_only)

    @deployments.change("PUT /scale", allowed=lives)
    async def put_scale(name: str, body: ScaleRequest, validate_only: bool = False) -> DeploymentView:
        """Have pools of so many nodes; roles change when nothing runs in them any more, or at the deadline."""
        return serving.rescale(name, body, validate_only=validate_only)

    @deployments.change("DELETE /scale", allowed=lives)
    async def delete_scale(name: str, validate_only: bool = False) -> None:
        """Have pools of the sizes of the spec again."""
        serving.rescale(name, None, validate_only=validate_only)

    api.of(STUCK).list(
        lambda: stuck_deployments(store, serving.clock.now()),
        description="Deployments that load, or rebuild their ranks, for longer than they may.",
    )
    return api.router


def statistics_of(
    live: LiveDeployment, now: float, window_s: float = WINDOW_S, tpot_s: float = TPOT_OBJECTIVE_S
) -> StatisticsView:
    """The deployment at this moment, and its last `window_s` emulated seconds."""
    live.play(now)
    current, engine = live.statistics, live.engine
    if engine is not None:
        engine.settle()
        now = engine.now
    recent = current.recent(now, window_s)
    rate = current.tokens_per_second(now, window_s)
    view = StatisticsView(
        name=name_of(live.name),
        state=live.state,
        now=now,
        window_s=window_s,
        measured_s=max(0.0, min(window_s, now - live.serves_from)) if live.serves else 0.0,
        tokens_per_second=rate,
        prompt_tokens_per_second=sum(entry[3] for entry in recent) / window_s,
        requests_per_second=len(recent) / window_s,
        ttft=percentiles([entry[1] for entry in recent]),
        tpot=percentiles([entry[2] for entry in recent if entry[2] > 0]),
        counting_since=live.counting_since,
        submitted=live.submitted,
        refused=live.admission.refused,
        finished=current.requests,
        cancelled=live.cancelled,
        lost=live.cut_off,
        requeued=live.requeued,
        activation_queue=live.activation.waiting,
        idle_s=live.activation.idle_s(live, now),
        samples=[
            Sample(at=round(now - second, 3), second=second, tokens_per_second=tokens)
            for second, tokens in current.samples(now, window_s)
        ],
        load=live.load,
    )
    if engine is None:
        return view
    states = [request.state for request in engine.in_flight.values()]
    npus, counts = engine.deployment.pools.npus, engine.cache.counts
    dies = engine.pool.dies
    view.tokens_per_second_per_npu = rate / npus
    view.waiting, view.in_flight = len(engine.waiting), len(engine.in_flight)
    view.queued = engine.queued
    view.prefilling, view.transferring = states.count(PREFILLING), states.count(TRANSFERRING)
    view.decoding = states.count(DECODING)
    view.prefill_busy = sum(bool(instance.chunk) for instance in engine.instances) / max(1, len(engine.instances))
    view.decode_step_ms = engine.pool.step_s * 1e3 if isfinite(engine.pool.step_s) else None
    view.decode_batch_per_npu = engine.pool.active * engine.deployment.calibration.dies_per_npu / max(1, len(dies))
    view.kv_usage = kv_usage(live)
    view.cache_hit_rate_blocks = counts.block_hit_rate if counts.blocks_asked else None
    view.cache_hit_rate_tokens = counts.token_hit_rate if counts.tokens_asked else None
    view.cache_blocks = len(engine.cache)
    view.decode_paused = now < live.paused_until
    view.work = work_of(live, now, window_s, tpot_s)
    return view


def kv_usage(live: LiveDeployment) -> float:
    """Share of the decode pool's KV memory that is set aside."""
    if live.engine is None:
        return 0.0
    dies = live.engine.pool.dies
    room = live.engine.deployment.kv_tokens_per_die * len(dies)
    return sum(die.reserved_tokens for die in dies) / room if room else 0.0
