"""Admission: whether a new request would be served within the deployment's objective.

Admitted requests stay within the objective because the others are refused at once, before anything is computed, with
429 and the time to retry. The decision uses the engine's present state, on the die and the prefill instance that would
get the request. For the first token it follows the instance's chunks up to the prompt (`engine.predict_first_token`); a
request that would make an admitted one late is refused. For later tokens it uses the step time once everything with a
place is decoding, and the longest time of an answer of that length (`engine.decode_time`), at the length the answer
will really have. Requests of lower priority do not count against it: they make room or wait, and left `headroom` for
that when they were admitted. Without an objective, requests wait as long as needed, within `queueMax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf

from infer_workload.contract.deployments import DeploymentRequest, ServingObjective
from infer_workload.ems.context_cache import Match
from infer_workload.engine.decode_time import current_step_s, max_steps, time_to_finish_s, time_to_room_s, transfer_s
from infer_workload.engine.engine import Engine
from infer_workload.engine.first_token import FirstToken, predict_first_token
from infer_workload.engine.request import DecodeDie, InferenceRequest
from infer_workload.engine.scheduler import choose_die, choose_instance, tpot_s
from infer_workload.serving.live.headroom import Headroom
from matrixcommon.model.errors import Overloaded
from matrixcommon.model.quantities import pluralized

QUEUE_MULTIPLE = 2
"""The most requests that wait in all, in multiples of `queueMax`: those of higher priority may pass a full queue."""

WAITING_SLACK = 0.03
"""Relative margin on the estimated waiting time, for changing traffic."""

RETRY_S = 1.0
"""Retry time, in emulated seconds, if no better one is known."""


class Admission:
    """The admission of one deployment. `refused` counts requests since the start."""

    def __init__(self) -> None:
        self.refused = 0
        self.headroom = Headroom()

    def check(self, engine: Engine, spec: DeploymentRequest, request: InferenceRequest) -> None:
        """Raise Overloaded, with the emulated seconds to wait, if the request would miss the objective."""
        candidate = _Candidate(engine, spec, request, self.headroom)
        self.headroom.record_placed(engine.now, engine.placement.placed)
        wait_s = candidate.wait_s()
        if wait_s > 0:
            self.refused += 1
            queued = len(engine.in_flight)
            raise Overloaded(
                f"overloaded: with {pluralized(queued, 'request')} in flight, this one would not be served in time",
                field="model",
                retry_after_s=wait_s if wait_s < inf else RETRY_S,
            )
        if spec.objective is not None:
            self.headroom.record_admitted(request, engine.now, candidate.prefill_s())


@dataclass(frozen=True)
class _Candidate:
    """A request to be admitted to an engine now."""

    engine: Engine
    spec: DeploymentRequest
    request: InferenceRequest
    headroom: Headroom

    def wait_s(self) -> float:
        """Seconds until it would be served in time if no other request came first; 0 if it can be admitted now."""
        engine, spec, request = self.engine, self.spec, self.request
        ahead, objective = engine.waiting.ahead_of(request.priority), spec.objective
        full = ahead >= spec.queue_max and (ahead or not self._starts_immediately())
        if full or len(engine.waiting) >= QUEUE_MULTIPLE * max(1, spec.queue_max):
            return self._time_to_room_s(inf) or RETRY_S
        if objective is None:
            return 0.0
        return self._wait_for_objective_s(objective)

    def _wait_for_objective_s(self, objective: ServingObjective) -> float:
        engine, request = self.engine, self.request
        target_s = objective.tpot_s or inf
        if engine.waiting.ahead_of(request.priority):
            return self._time_to_room_s(target_s)
        place = engine.placement.find_place(request.priority, self._total_tokens)
        die, leaving = place or (self._least_loaded_die, ())
        if (
            die is None
            or tpot_s(engine.pool, die, self._total_tokens, leaving) > target_s
            or not self._leaves_headroom(target_s)
        ):
            return self._time_to_room_s(target_s) or RETRY_S
        if (prompt := self._first_token(leaving)) is None:
            return inf
        if objective.tpot_s is not None and (wait_s := self._wait_for_tpot_s(prompt, die, objective.tpot_s)) > 0:
            return wait_s
        if objective.ttft_s is None:
            return 0.0
        waits_s = 0.0 if place is not None else self._time_to_room_s(target_s)
        return self._wait_for_ttft_s(prompt, waits_s, objective.ttft_s)

    @property
    def _total_tokens(self) -> int:
        return self.request.prompt + self.request.output_tokens

    @property
    def _least_loaded_die(self) -> DecodeDie | None:
        deployment, (dies, _) = self.engine.deployment, self.engine.placement.schedulable()
        return choose_die(dies, self._total_tokens, deployment.batch_per_die, deployment.kv_tokens_per_die)

    def _leaves_headroom(self, target_s: float) -> bool:
        """Whether the dies, with this request, still have room for the expected requests of higher priority."""
        pool, deployment, priority = self.engine.pool, self.engine.deployment, self.request.priority
        if not self.headroom.has_higher_priority(priority):
            return True
        per_step = pool.timing.tokens_per_step
        places, tokens = self.headroom.expected_places(
            priority, self.engine.placement.placed, current_step_s(pool) / per_step
        )
        if not places:
            return True
        dies, _ = self.engine.placement.schedulable()
        batch = (sum(each.reserved for each in dies) + 1 + places) / len(dies)
        together = (sum(each.reserved_tokens for each in dies) + self._total_tokens + tokens) / len(dies)
        if batch > deployment.batch_per_die or together > deployment.kv_tokens_per_die:
            return False
        return pool.timing.step_s(ceil(batch), ceil(together)) <= target_s * per_step

    def _starts_immediately(self) -> bool:
        """Whether it would start without waiting, which is required if `queueMax` is 0."""
        _, instances = self.engine.placement.schedulable()
        return (
            bool(instances) and self.engine.placement.find_place(self.request.priority, self._total_tokens) is not None
        )

    # The first token.

    @cached_property
    def _match(self) -> Match:
        """The part of its prompt that the context cache has."""
        return self.engine.cache.peek(self.request.blocks, self.request.prompt)

    def prefill_s(self) -> float:
        """Seconds of a busy instance that its prompt takes: its part of a chunk full of such prompts."""
        _, instances = self.engine.placement.schedulable()
        if not instances:
            return 0.0
        cached = min(self._match.tokens, self.request.prompt - 1)
        return instances[0].timing.part_s(self.request.prompt - cached, cached, instances[0].token_budget)

    def _first_token(self, leaving: Sequence[InferenceRequest]) -> FirstToken | None:
        """The first token on the instance that would get it; None if no instance is open."""
        engine, request = self.engine, self.request
        _, instances = engine.placement.schedulable()
        if not instances:
            return None
        instance = choose_instance(instances, self._match, request.priority)
        return predict_first_token(
            engine.deployment, engine.cache.nodes, instance, request, self._match, engine.now, leaving
        )

    def _wait_for_ttft_s(self, prompt: FirstToken, waits_s: float, ttft_s: float) -> float:
        """Seconds until its first token would be in time without making an admitted request late."""
        now = self.engine.now
        own_s = min(prompt.alone_s, prompt.at - now)
        queued_s = self.headroom.wait_s(self.request.priority, prompt.at - now - own_s, self._open_instances)
        late_s = waits_s + own_s + queued_s * (1 + WAITING_SLACK) - ttft_s
        if late_s <= 0 and (before_at := self._delays_others_at(prompt, ttft_s)):
            return max(prompt.joins_at - now, before_at + own_s - now - ttft_s) or RETRY_S
        return max(0.0, late_s)

    def _delays_others_at(self, prompt: FirstToken, ttft_s: float) -> float:
        """If it would make others in its first chunk late, counting the work that higher priorities than theirs may
        still bring: the time at which that chunk would end without it. 0 if it makes none late."""
        counted = [each for each in prompt.finishing_with if self._must_not_delay(each)]
        joins_s = prompt.joins_at - self.engine.now
        ends_at = {
            priority: prompt.finishing_with_at + self.headroom.work_s(priority, joins_s, self._open_instances)
            for priority in {each.priority for each in counted}
        }
        due_at = [each.arrived_at + ttft_s for each in counted if each.arrived_at + ttft_s < ends_at[each.priority]]
        if not due_at:
            return 0.0
        before_at = prompt.finishing_without_at()
        return before_at if max(due_at) >= before_at else 0.0

    @property
    def _open_instances(self) -> int:
        return len(self.engine.placement.schedulable()[1])

    def _must_not_delay(self, other: InferenceRequest) -> bool:
        """Whether this request must not delay the first token of the other."""
        return other.priority <= self.request.priority and other.first_token_at < 0

    # The tokens after it.

    def _wait_for_tpot_s(self, prompt: FirstToken, die: DecodeDie, target_s: float) -> float:
        """Seconds until its tokens would be in time, at the pace that 99 of 100 answers of its length keep. Requests
        that would be late even on an empty pool are admitted: they would be no faster later."""
        engine, tokens = self.engine, self.request.output_tokens - 1
        if tokens < 1:
            return 0.0
        pool, deployment, length = engine.pool, engine.deployment, self.request.prompt
        moving_s = transfer_s(deployment, prompt.instance, die, length, max(length, prompt.kv_tokens))
        moving_s = max(moving_s, pool.paused_until - prompt.at)
        steps, step_s = max_steps(pool, tokens), current_step_s(pool)
        if moving_s + steps * step_s <= tokens * target_s:
            return 0.0
        alone_s = pool.timing.step_s(1, self._total_tokens)
        if transfer_s(deployment, prompt.instance, die, length, length) + steps * alone_s > tokens * target_s:
            return 0.0
        pause_s = pool.paused_until - engine.now - tokens * target_s
        within_s = (tokens * target_s - moving_s) / steps
        if pause_s > 0:
            return pause_s
        kept = max(0.0, within_s - alone_s) / max(within_s, step_s - alone_s)  # step time is linear in requests
        return time_to_finish_s(pool, (1.0 - kept) * len(engine.in_flight) / max(1, pool.active), engine.now) or RETRY_S

    def _time_to_room_s(self, target_s: float) -> float:
        """Seconds until a die has room for it within a target time per token; infinity if that is unknown."""
        pool, deployment, tokens = self.engine.pool, self.engine.deployment, self._total_tokens
        step_s = target_s * pool.timing.tokens_per_step

        def fits(die: DecodeDie, requests: int, reserved: int) -> bool:
            batch, together = die.reserved + 1 - requests, die.reserved_tokens + tokens - reserved
            if together > deployment.kv_tokens_per_die or batch > deployment.batch_per_die:
                return False
            return pool.timing.step_s(batch, together) <= step_s

        return time_to_room_s(pool, fits, self.engine.now)


def wall_s(seconds: float, scale: float) -> float:
    """Emulated seconds as whole wall seconds, at least one, for Retry-After."""
    return float(max(1, ceil(seconds / scale)))
