"""Demand on a deployment in nodes that it would keep busy: the signal for an autoscaler.

Demand is counted on arrival, because throughput is flat under overload. A prompt costs its uncached tokens at the rate
of a prefill instance with full chunks. An answer occupies a place on a decode die for as long as it takes at the
objective, and a die has as many places as it can serve within the objective. Each is divided by the share of nodes in
its role, so that one number says how many nodes are needed at the present ratio of the roles.
"""

from __future__ import annotations

from math import isfinite

from infer_workload.contract.statistics import WorkView
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import PREFILLING, WAITING
from infer_workload.layout.deployment import min_decode_nodes
from infer_workload.layout.recovery import cold_start_s
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.timing.decode import DecodeTiming

TPOT_OBJECTIVE_S = 0.05
"""The paper's objective for the time per token of an answer."""
ANSWER_RATE_WINDOW_S = 30.0
"""The shortest time over which the rate of answers is measured: they last long, and a shorter sample is noise."""
CHUNK_TOKENS = 32_768
ANSWER_TOKENS, PROMPT_TOKENS = 512.0, 4096.0
"""Lengths assumed until requests have finished."""
CACHE_KEPT_S = 600.0
"""How long the context cache should keep a block (assumed): the next turn of a conversation comes within minutes."""


def work_of(live: LiveDeployment, now: float, window_s: float, tpot_s: float = TPOT_OBJECTIVE_S) -> WorkView | None:
    """The demand at that objective for time per token. None until the deployment has served for a whole window, and
    while a plane it needs carries nothing: then no number of nodes would be enough, and there is none to report."""
    engine = live.engine
    if engine is None or not live.serves or now - live.layout.loading.serves_from < window_s:
        return None
    done, pools = live.statistics, engine.deployment.pools
    arrivals, tokens = done.arrivals(now, window_s)
    answer = done.generated_tokens / done.requests if done.requests else ANSWER_TOKENS
    prompt = tokens / arrivals if arrivals else PROMPT_TOKENS
    token_s = _token_s(engine, prompt)
    prompt_s = engine.prefill.instances[0].timing.chunk_s([(max(1, round(prompt)), 0)])
    if not isfinite(token_s + prompt_s):
        return None
    uncached = 1.0 - engine.cache.counts.token_hit_rate
    prefill = tokens / window_s * uncached * token_s
    waiting = sum(
        each.prompt * uncached if each.state == WAITING else each.prompt - each.prefilled
        for each in engine.in_flight.values()
        if each.state in (WAITING, PREFILLING)
    )
    stays_s = answer * tpot_s
    places = batch_within(engine.pool.timing, prompt + answer / 2, engine.deployment.kv_tokens_per_die, tpot_s)
    places = min(places, engine.deployment.batch_per_die) * engine.deployment.calibration.dies_per_node
    decoding = (
        max(_per_s(live, now, max(window_s, ANSWER_RATE_WINDOW_S, stays_s / 2)) * stays_s, engine.pool.active) / places
    )
    shares = (pools.prefill_nodes, prefill), (len(pools.decode), decoding)
    nodes = pools.prefill_nodes + len(pools.decode)
    return WorkView(
        arrivals_per_second=arrivals / window_s,
        prompt_tokens_per_second=tokens / window_s,
        prefill_nodes=prefill,
        decode_nodes=decoding,
        nodes=max(nodes * load / share for share, load in shares if share),
        backlog_node_seconds=waiting * token_s * nodes / max(1, pools.prefill_nodes),
        start_s=cold_start_s(engine.deployment, live.layout.weights),
        stays_s=stays_s,
        prompt_s=prompt_s,
        prefill_backlog_node_seconds=waiting * token_s,
        caching_nodes=_caching_nodes(engine, tokens / window_s * uncached),
        prefill_instance_nodes=engine.deployment.calibration.nodes_per_prefill_instance,
        decode_nodes_min=min_decode_nodes(
            engine.deployment.model, engine.deployment.calibration, engine.deployment.context_length, len(pools.decode)
        ),
    )


def _per_s(live: LiveDeployment, now: float, over_s: float) -> float:
    """Requests per second over `over_s`. The caller takes longer for long answers: in a burst, the higher of the
    short-term rate and the occupied places would be twice the real demand."""
    over_s = min(over_s, now - live.layout.loading.serves_from)
    return live.statistics.arrivals(now, over_s)[0] / over_s


def _caching_nodes(engine: Engine, new_tokens_per_second: float) -> float:
    """Nodes whose memory holds the blocks added in `CACHE_KEPT_S`: Little's law on bytes."""
    deployment = engine.deployment
    if not deployment.cache_blocks:
        return 0.0
    per_node = deployment.cache_blocks / len(deployment.pools.caching)
    return new_tokens_per_second / deployment.spec.block_tokens * CACHE_KEPT_S / per_node


def _token_s(engine: Engine, prompt: float) -> float:
    """Node-seconds of prefill per new token, in full chunks of prompts of that length."""
    length = max(1, round(prompt))
    count = max(1, CHUNK_TOKENS // length)
    instance = engine.prefill.instances[0]
    return instance.timing.chunk_s([(length, 0)] * count) * len(instance.nodes) / (count * length)


def batch_within(timing: DecodeTiming, context: float, room: float, within_s: float = TPOT_OBJECTIVE_S) -> int:
    """The most requests of `context` tokens per die that fit its `room` (tokens) and keep the time per token."""
    low, high = 1, max(1, int(room / context))
    while low < high:
        middle = (low + high + 1) // 2
        in_time = timing.step_s(middle, middle * context) <= within_s * timing.tokens_per_step
        low, high = (middle, high) if in_time else (low, middle - 1)
    return low
