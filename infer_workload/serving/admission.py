"""Admission: whether a request that comes in now would be served within the deployment's objective.

An objective keeps what is admitted within it, by refusing the rest at once with the time to come again (429), before
anything is computed. Both halves are judged on what is there at this moment: the first token by what waits in front of
the prompt on the instance that would take it, the following ones by what a step takes once everything that has a place
is decoded. Answers are judged at the length that they come to have. Without an objective requests wait as long as it
takes, as far as `queueMax` lets them.
"""

from __future__ import annotations

from math import ceil, inf

from infer_workload.contract import DeploymentRequest
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.engine.scheduler import choose_die
from matrixcommon.model.errors import Overloaded

PROMPT_TOKENS, CHUNK_PROMPTS = 4096, 8
"""What waits is taken to be such prompts, in chunks of so many: the time of a token hardly falls in larger ones."""


class Admission:
    """Of one deployment. `refused` counts requests since the start."""

    def __init__(self) -> None:
        self.refused = 0

    def check(self, engine: Engine, spec: DeploymentRequest, request: InferenceRequest) -> None:
        """Raises Overloaded, with seconds of emulated time to wait, for a request that would come too late."""
        cached = engine.cache.known_tokens(request.blocks, request.prompt) if spec.objective is not None else 0
        wait_s = _over_s(engine, spec, request.prompt, cached, request.output_tokens)
        if wait_s > 0:
            self.refused += 1
            queued = len(engine.in_flight)
            raise Overloaded(
                f"{queued} requests are in flight, and one more would not be served in time",
                field="model",
                retry_after_s=wait_s,
            )


def _over_s(engine: Engine, spec: DeploymentRequest, prompt: int, cached: int, answer: int) -> float:
    """How many seconds too late it would come; 0 where it is in time."""
    if len(engine.waiting) >= spec.queue_max:
        return 1.0
    objective = spec.objective
    if objective is None:
        return 0.0
    if objective.tpot_s is not None and (late := _tpot_s(engine, prompt + answer) - objective.tpot_s) > 0:
        return answer * objective.tpot_s / max(1, len(engine.in_flight)) if late < inf else 1.0
    if objective.ttft_s is not None and (late := _ttft_s(engine, prompt, cached) - objective.ttft_s) > 0:
        return late if late < inf else 1.0
    return 0.0


def _tpot_s(engine: Engine, tokens: int) -> float:
    """What a token takes when all that has a place is decoded, this request too; infinity without a place for it."""
    deployment, pool = engine.deployment, engine.pool
    dies, _ = engine.open_places()
    die = choose_die(dies, tokens, deployment.batch_per_die, deployment.kv_tokens_per_die)
    if die is None or engine.waiting:
        return inf
    fullest = max(die.reserved + 1, max(each.reserved for each in dies))
    longest = max(die.reserved_tokens + tokens, max(each.reserved_tokens for each in dies))
    return pool.timing.step_s(fullest, longest) / pool.timing.tokens_per_step


def _ttft_s(engine: Engine, prompt: int, cached: int) -> float:
    """How long its first token takes, behind all that waits on the least busy instance."""
    _, instances = engine.open_places()
    if not instances or engine.waiting:
        return inf
    instance = min(instances, key=lambda each: each.backlog_tokens)
    token_s = instance.timing.exact_chunk_s([(PROMPT_TOKENS, 0)] * CHUNK_PROMPTS) / (PROMPT_TOKENS * CHUNK_PROMPTS)
    alone_s = instance.timing.chunk_s([(max(1, prompt - cached), min(cached, prompt - 1))])
    starts_s = max(0.0, instance.ready_at - engine.now)
    return starts_s + instance.backlog_tokens * token_s + alone_s


def wall_s(seconds: float, scale: float) -> float:
    """Emulated seconds as whole ones of the wall, at least one: what Retry-After says."""
    return float(max(1, ceil(seconds / scale)))
