"""Admission: whether a request that comes in now would be served within the deployment's objective.

An objective keeps what is admitted within it, by refusing the rest at once with the time to come again (429), before
anything is computed. Both halves are judged on what is there at this moment: the first token by what waits in front of
the prompt on the instance that would take it, the following ones by what a step takes once everything that has a place
is decoded. Answers are judged at the length that they come to have. What has a later priority is not in the way: it
makes room, or waits. Without an objective requests wait as long as it takes, as far as `queueMax` lets them.
"""

from __future__ import annotations

from math import ceil, inf

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.engine.scheduler import choose_die, tpot_s
from matrixcommon.model.errors import Overloaded
from matrixcommon.model.quantities import counted

PROMPT_TOKENS, CHUNK_PROMPTS = 4096, 8
"""What waits is taken to be such prompts, in chunks of so many: the time of a token hardly falls in larger ones."""

QUEUES = 2
"""So many times `queueMax` may wait with those that came before requests of earlier priorities did."""


class Admission:
    """Of one deployment. `refused` counts requests since the start."""

    def __init__(self) -> None:
        self.refused = 0

    def check(self, engine: Engine, spec: DeploymentRequest, request: InferenceRequest) -> None:
        """Raises Overloaded, with seconds of emulated time to wait, for a request that would come too late."""
        cached = engine.cache.known_tokens(request.blocks, request.prompt) if spec.objective is not None else 0
        wait_s = _over_s(engine, spec, request, cached)
        if wait_s > 0:
            self.refused += 1
            queued = len(engine.in_flight)
            raise Overloaded(
                f"beside {counted(queued, 'request')} in flight one more would not be served in time",
                field="model",
                retry_after_s=wait_s,
            )


def _over_s(engine: Engine, spec: DeploymentRequest, request: InferenceRequest, cached: int) -> float:
    """How many seconds too late it would come; 0 where it is in time."""
    ahead, answer = engine.waiting.ahead_of(request.priority), request.output_tokens
    if (ahead >= spec.queue_max and (ahead or not _begins_at_once(engine, request))) or len(
        engine.waiting
    ) >= QUEUES * max(1, spec.queue_max):
        return 1.0
    objective = spec.objective
    if objective is None:
        return 0.0
    if objective.tpot_s is not None and (late := _tpot_s(engine, request) - objective.tpot_s) > 0:
        return answer * objective.tpot_s / max(1, len(engine.in_flight)) if late < inf else 1.0
    if objective.ttft_s is not None and (late := _ttft_s(engine, request, cached) - objective.ttft_s) > 0:
        return late if late < inf else 1.0
    return 0.0


def _begins_at_once(engine: Engine, request: InferenceRequest) -> bool:
    """Whether it waits for nothing: what a deployment takes whose requests may not wait (`queueMax` 0)."""
    _, instances = engine.placement.open_places()
    place = engine.placement.place_for(request.priority, request.prompt + request.output_tokens)
    return bool(instances) and place is not None


def _tpot_s(engine: Engine, request: InferenceRequest) -> float:
    """What a token takes when all that has a place is decoded, this request too; infinity without a place for it."""
    if engine.waiting.ahead_of(request.priority):
        return inf
    tokens = request.prompt + request.output_tokens
    die, making_room = engine.placement.place_for(request.priority, tokens) or (None, ())
    if die is None:
        deployment, (dies, _) = engine.deployment, engine.placement.open_places()
        die = choose_die(dies, tokens, deployment.batch_per_die, deployment.kv_tokens_per_die)
    return inf if die is None else tpot_s(engine.pool, die, tokens, making_room)


def _ttft_s(engine: Engine, request: InferenceRequest, cached: int) -> float:
    """How long its first token takes, behind all that goes before it on the instance with least of that."""
    _, instances = engine.placement.open_places()
    if not instances or engine.waiting.ahead_of(request.priority):
        return inf
    instance = min(instances, key=lambda each: each.tokens_before(request.priority))
    token_s = instance.timing.exact_chunk_s([(PROMPT_TOKENS, 0)] * CHUNK_PROMPTS) / (PROMPT_TOKENS * CHUNK_PROMPTS)
    alone_s = instance.timing.chunk_s([(max(1, request.prompt - cached), min(cached, request.prompt - 1))])
    starts_s = max(0.0, instance.ready_at - engine.now)
    return starts_s + instance.tokens_before(request.priority) * token_s + alone_s


def wall_s(seconds: float, scale: float) -> float:
    """Emulated seconds as whole ones of the wall, at least one: what Retry-After says."""
    return float(max(1, ceil(seconds / scale)))
