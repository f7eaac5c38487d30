"""Admission: whether a request that comes in now would be served within the deployment's objective.

An objective keeps what is admitted within it, by refusing the rest at once with the time to come again (429), before
anything is computed. All of it is judged on what is there at this moment, and as the engine would do it: on the die and
the instance that would take the request. The first token is judged by the chunks that the instance has before and with
the prompt (`engine.first_token`), and nobody is let in who would make those late that were let in before; the following
ones by what a step takes once everything that has a place is decoded, and by what an answer of that length takes at
most (`engine.decode_time`). Answers are judged at the length that they come to have. What has a later priority is not
in the way: it makes room, or waits, for which it left `headroom` when it was let in. Without an objective requests wait
as long as it takes, as far as `queueMax` lets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf

from infer_workload.contract.deployments import DeploymentRequest, ServingObjective
from infer_workload.ems.context_cache import Match
from infer_workload.engine.decode_time import finish_in_s, most_steps, present_step_s, room_in_s, transfer_s
from infer_workload.engine.engine import Engine
from infer_workload.engine.first_token import FirstToken, first_token
from infer_workload.engine.request import DecodeDie, InferenceRequest
from infer_workload.engine.scheduler import choose_die, choose_instance, tpot_s
from infer_workload.serving.live.headroom import Headroom
from matrixcommon.model.errors import Overloaded
from matrixcommon.model.quantities import counted

QUEUES = 2
"""So many times `queueMax` may wait with those that came before requests of earlier priorities did."""

WAITING_SLACK = 0.03
"""What waits may take so much longer than it looks now, beside traffic that changes, without anybody being late."""

RETRY_S = 1.0
"""When to come again where nothing says it."""


class Admission:
    """Of one deployment. `refused` counts requests since the start."""

    def __init__(self) -> None:
        self.refused = 0
        self.headroom = Headroom()

    def check(self, engine: Engine, spec: DeploymentRequest, request: InferenceRequest) -> None:
        """Raises Overloaded, with seconds of emulated time to wait, for a request that would come too late."""
        asked = _Asked(engine, spec, request, self.headroom)
        self.headroom.look(engine.now, engine.placement.placed)
        wait_s = asked.wait_s()
        if wait_s > 0:
            self.refused += 1
            queued = len(engine.in_flight)
            raise Overloaded(
                f"beside {counted(queued, 'request')} in flight one more would not be served in time",
                field="model",
                retry_after_s=wait_s if wait_s < inf else RETRY_S,
            )
        if spec.objective is not None:
            self.headroom.admitted(request, engine.now, asked.prefill_s())


@dataclass(frozen=True)
class _Asked:
    """A request that comes to an engine now."""

    engine: Engine
    spec: DeploymentRequest
    request: InferenceRequest
    headroom: Headroom

    def wait_s(self) -> float:
        """How long until it would be served in time if nobody else came before; 0 where it is now."""
        engine, spec, request = self.engine, self.spec, self.request
        ahead, objective = engine.waiting.ahead_of(request.priority), spec.objective
        full = ahead >= spec.queue_max and (ahead or not self._begins_at_once())
        if full or len(engine.waiting) >= QUEUES * max(1, spec.queue_max):
            return self._room_in_s(inf) or RETRY_S
        if objective is None:
            return 0.0
        return self._late_s(objective)

    def _late_s(self, objective: ServingObjective) -> float:
        engine, request = self.engine, self.request
        target_s = objective.tpot_s or inf
        if engine.waiting.ahead_of(request.priority):
            return self._room_in_s(target_s)
        place = engine.placement.place_for(request.priority, self._tokens)
        die, leaving = place or (self._emptiest, ())
        if die is None or tpot_s(engine.pool, die, self._tokens, leaving) > target_s or not self._leaves_room(target_s):
            return self._room_in_s(target_s) or RETRY_S
        if (prompt := self._first_token(leaving)) is None:
            return inf
        if objective.tpot_s is not None and (wait_s := self._slow_s(prompt, die, objective.tpot_s)) > 0:
            return wait_s
        if objective.ttft_s is None:
            return 0.0
        waits_s = 0.0 if place is not None else self._room_in_s(target_s)
        return self._first_token_late_s(prompt, waits_s, objective.ttft_s)

    @property
    def _tokens(self) -> int:
        return self.request.prompt + self.request.output_tokens

    @property
    def _emptiest(self) -> DecodeDie | None:
        deployment, (dies, _) = self.engine.deployment, self.engine.placement.open_places()
        return choose_die(dies, self._tokens, deployment.batch_per_die, deployment.kv_tokens_per_die)

    def _leaves_room(self, target_s: float) -> bool:
        """Whether the dies have room, with the request, for what those of earlier priorities will take of it."""
        pool, deployment, priority = self.engine.pool, self.engine.deployment, self.request.priority
        if not self.headroom.has_before(priority):
            return True
        per_step = pool.timing.tokens_per_step
        places, tokens = self.headroom.places(priority, self.engine.placement.placed, present_step_s(pool) / per_step)
        if not places:
            return True
        dies, _ = self.engine.placement.open_places()
        batch = (sum(each.reserved for each in dies) + 1 + places) / len(dies)
        together = (sum(each.reserved_tokens for each in dies) + self._tokens + tokens) / len(dies)
        if batch > deployment.batch_per_die or together > deployment.kv_tokens_per_die:
            return False
        return pool.timing.step_s(ceil(batch), ceil(together)) <= target_s * per_step

    def _begins_at_once(self) -> bool:
        """Whether it waits for nothing: what a deployment takes whose requests may not wait (`queueMax` 0)."""
        _, instances = self.engine.placement.open_places()
        return bool(instances) and self.engine.placement.place_for(self.request.priority, self._tokens) is not None

    # The first token.

    @cached_property
    def _match(self) -> Match:
        """What the context cache holds of its prompt."""
        return self.engine.cache.peek(self.request.blocks, self.request.prompt)

    def prefill_s(self) -> float:
        """What its prompt takes an instance that is busy: its part of a chunk that is full of such ones."""
        _, instances = self.engine.placement.open_places()
        if not instances:
            return 0.0
        cached = min(self._match.tokens, self.request.prompt - 1)
        return instances[0].timing.part_s(self.request.prompt - cached, cached, instances[0].token_budget)

    def _first_token(self, leaving: Sequence[InferenceRequest]) -> FirstToken | None:
        """What the instance that would take it would do; None where there is none."""
        engine, request = self.engine, self.request
        _, instances = engine.placement.open_places()
        if not instances:
            return None
        instance = choose_instance(instances, self._match, request.priority)
        return first_token(engine.deployment, engine.cache.nodes, instance, request, self._match, engine.now, leaving)

    def _first_token_late_s(self, prompt: FirstToken, waits_s: float, ttft_s: float) -> float:
        """How long until its first token would be in time, and make nobody late that was let in before."""
        now = self.engine.now
        own_s = min(prompt.alone_s, prompt.at - now)
        queued_s = self.headroom.wait_s(self.request.priority, prompt.at - now - own_s, self._instances)
        late_s = waits_s + own_s + queued_s * (1 + WAITING_SLACK) - ttft_s
        if late_s <= 0 and (before_at := self._makes_late_at(prompt, ttft_s)):
            return max(prompt.joins_at - now, before_at + own_s - now - ttft_s) or RETRY_S
        return max(0.0, late_s)

    def _makes_late_at(self, prompt: FirstToken, ttft_s: float) -> float:
        """When the chunk that it begins in would end without it, where others in that would be late by it, with what
        earlier priorities than theirs may still bring; 0 where nobody is."""
        counted = [each for each in prompt.beside if self._counts(each)]
        joins_s = prompt.joins_at - self.engine.now
        ends_at = {
            priority: prompt.beside_at + self.headroom.work_s(priority, joins_s, self._instances)
            for priority in {each.priority for each in counted}
        }
        due_at = [each.arrived_at + ttft_s for each in counted if each.arrived_at + ttft_s < ends_at[each.priority]]
        if not due_at:
            return 0.0
        before_at = prompt.beside_before()
        return before_at if max(due_at) >= before_at else 0.0

    @property
    def _instances(self) -> int:
        return len(self.engine.placement.open_places()[1])

    def _counts(self, other: InferenceRequest) -> bool:
        """Whether the first token of another one must not be late for this one's."""
        return other.priority <= self.request.priority and other.first_token_at < 0

    # The tokens after it.

    def _slow_s(self, prompt: FirstToken, die: DecodeDie, target_s: float) -> float:
        """How long until its tokens would come in time, as fast as 99 of 100 answers of its length do. Such as would
        not be in time on an empty pool either are taken as they are: later they would be no faster."""
        engine, tokens = self.engine, self.request.output_tokens - 1
        if tokens < 1:
            return 0.0
        pool, deployment, length = engine.pool, engine.deployment, self.request.prompt
        moving_s = transfer_s(deployment, prompt.instance, die, length, max(length, prompt.kv_tokens))
        moving_s = max(moving_s, pool.paused_until - prompt.at)
        steps, step_s = most_steps(pool, tokens), present_step_s(pool)
        if moving_s + steps * step_s <= tokens * target_s:
            return 0.0
        alone_s = pool.timing.step_s(1, self._tokens)
        if transfer_s(deployment, prompt.instance, die, length, length) + steps * alone_s > tokens * target_s:
            return 0.0
        pause_s = pool.paused_until - engine.now - tokens * target_s
        within_s = (tokens * target_s - moving_s) / steps
        if pause_s > 0:
            return pause_s
        kept = max(0.0, within_s - alone_s) / max(within_s, step_s - alone_s)  # a step is a straight line over requests
        return finish_in_s(pool, (1.0 - kept) * len(engine.in_flight) / max(1, pool.active), engine.now) or RETRY_S

    def _room_in_s(self, target_s: float) -> float:
        """Until a die has room for it, with a target for the time of a token; infinity where nobody knows."""
        pool, deployment, tokens = self.engine.pool, self.engine.deployment, self._tokens
        step_s = target_s * pool.timing.tokens_per_step

        def fits(die: DecodeDie, requests: int, reserved: int) -> bool:
            batch, together = die.reserved + 1 - requests, die.reserved_tokens + tokens - reserved
            if together > deployment.kv_tokens_per_die or batch > deployment.batch_per_die:
                return False
            return pool.timing.step_s(batch, together) <= step_s

        return room_in_s(pool, fits, self.engine.now)


def wall_s(seconds: float, scale: float) -> float:
    """Emulated seconds as whole ones of the wall, at least one: what Retry-After says."""
    return float(max(1, ceil(seconds / scale)))
