"""The statistics view of a live deployment: its present state and its recent past."""

from __future__ import annotations

from math import isfinite

from infer_workload.contract.statistics import Sample, StatisticsView
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import DECODING, PREFILLING, TRANSFERRING
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.live.statistics import WINDOW_S, percentiles
from infer_workload.serving.work import TPOT_OBJECTIVE_S, work_of
from matrixcommon.model.resource_key import name_of


def statistics_of(
    live: LiveDeployment, now: float, window_s: float = WINDOW_S, tpot_s: float = TPOT_OBJECTIVE_S
) -> StatisticsView:
    """Statistics of the deployment now and over its last `window_s` emulated seconds."""
    live.advance(now)
    current, engine = live.statistics, live.engine
    if engine is not None:
        engine.sync_counters()
        now = engine.now
    recent = current.recent(now, window_s)
    view = StatisticsView(
        name=name_of(live.name),
        state=live.state,
        now=now,
        window_s=window_s,
        measured_s=max(0.0, min(window_s, now - live.layout.loading.serves_from)) if live.serves else 0.0,
        tokens_per_second=current.tokens_per_second(now, window_s),
        prompt_tokens_per_second=sum(entry[3] for entry in recent) / window_s,
        requests_per_second=len(recent) / window_s,
        ttft=percentiles([entry[1] for entry in recent]),
        tpot=percentiles([entry[2] for entry in recent if entry[2] > 0]),
        counting_since=live.counting_since,
        submitted=live.intake.submitted,
        refused=live.intake.admission.refused,
        finished=current.requests,
        cancelled=live.intake.cancelled,
        lost=live.layout.cut_off,
        requeued=live.layout.requeued,
        activation_queue=live.activation.waiting,
        idle_s=live.activation.idle_s(live, now),
        samples=[
            Sample(at=round(now - second, 3), second=second, tokens_per_second=tokens)
            for second, tokens in current.samples(now, window_s)
        ],
        load=live.load,
    )
    if engine is not None:
        _add_engine(view, engine)
        view.kv_usage = kv_usage(live)
        view.decode_paused = now < live.layout.loading.paused_until
        view.work = work_of(live, now, window_s, tpot_s)
    return view


def _add_engine(view: StatisticsView, engine: Engine) -> None:
    """Add the engine's figures: requests by state, pools, and the context cache."""
    states = [request.state for request in engine.in_flight.values()]
    npus, counts = engine.deployment.pools.npus, engine.cache.counts
    dies = engine.pool.dies
    view.tokens_per_second_per_npu = view.tokens_per_second / npus
    view.waiting, view.in_flight = len(engine.waiting), len(engine.in_flight)
    view.queued = engine.queued
    view.prefilling, view.transferring = states.count(PREFILLING), states.count(TRANSFERRING)
    view.decoding = states.count(DECODING)
    instances = engine.prefill.instances
    view.prefill_busy = sum(bool(instance.chunk) for instance in instances) / max(1, len(instances))
    view.decode_step_ms = engine.pool.step_s * 1e3 if isfinite(engine.pool.step_s) else None
    view.decode_batch_per_npu = engine.pool.active * engine.deployment.calibration.dies_per_npu / max(1, len(dies))
    view.cache_hit_rate_blocks = counts.block_hit_rate if counts.blocks_asked else None
    view.cache_hit_rate_tokens = counts.token_hit_rate if counts.tokens_asked else None
    view.cache_blocks = len(engine.cache)


def kv_usage(live: LiveDeployment) -> float:
    """Share of the decode pool's KV memory that is reserved."""
    if live.engine is None:
        return 0.0
    dies = live.engine.pool.dies
    room = live.engine.deployment.kv_tokens_per_die * len(dies)
    return sum(die.reserved_tokens for die in dies) / room if room else 0.0
