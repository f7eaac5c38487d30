"""The time of one decode step.

All dies of the pool step together. A layer consists of an attention path and an expert path (`decode_operators`).
Without microbatches they run one after another on the whole die. With two microbatches, the paper's two streams run in
parallel: the attention path of one beside the expert path of the other on the remaining cores; HBM is shared and every
weight is read twice. With MTP each request has two query tokens and an extra layer drafts the next token, so a step
yields 1 + acceptance tokens. Ranks are not equally fast: computation between two exchanges waits for the slowest rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log, sqrt

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode_operators import attention_path, dense_path, expert_path, step_operators
from infer_workload.timing.dense import decode_layer
from infer_workload.timing.experts import ExpertLayout
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import Die, Operator
from infer_workload.timing.routing import imbalance
from infer_workload.timing.schedule import paired_s, serial_s, split_cores

CONTEXTS = (0.0, *(256.0 * 1.125**at for at in range(70)))
"""Mean contexts (tokens per request) at which steps are evaluated; times between them are interpolated linearly."""


@lru_cache(maxsize=64)
def _steps_of(*_: Hashable) -> dict[tuple[int, int], float]:
    return {}


@dataclass(frozen=True)
class StepOptions:
    """Options of a step. With `microbatch` None the batch size decides (in the paper's system, on from 16 per NPU)."""

    microbatch: bool | None = None
    mtp: bool = True
    acceptance: float | None = None


def straggler_factor(calibration: Calibration, ranks: int) -> float:
    """Return the factor by which waiting for the slowest of `ranks` stretches computation."""
    if ranks < 2:
        return 1.0
    return 1.0 + calibration.straggle_share * sqrt(log(ranks) / log(calibration.straggle_ranks))


@dataclass(frozen=True)
class LayerOperators:
    """The operators of one microbatch in one kind of layer, and how many such layers a step has."""

    layers: int
    attention: Sequence[Operator]
    experts: Sequence[Operator]


@dataclass
class DecodeTiming:
    """Step times of one decode pool under one view of the fabric."""

    model: ServedModel
    calibration: Calibration
    exchange: Exchange
    layout: ExpertLayout
    options: StepOptions = StepOptions()

    @cached_property
    def _steps(self) -> dict[tuple[int, int], float]:
        """Cache of evaluated steps, shared by all pools of one kind with the same fabric rates, so that nothing is
        recomputed when an earlier state of the fabric returns."""
        exchange = type(self.exchange), self.exchange.ranks, self.exchange.rates_gbps
        return _steps_of(self.model, self.calibration, exchange, self.layout, self.options)

    @property
    def tokens_per_step(self) -> float:
        """Average number of tokens that a step yields per request."""
        return 1.0 + (self.acceptance if self.options.mtp else 0.0)

    @property
    def acceptance(self) -> float:
        given = self.options.acceptance
        return self.calibration.mtp_acceptance if given is None else given

    def step_s(self, requests: int, kv_tokens: float) -> float:
        """Time of one step when the fullest die has `requests` requests with `kv_tokens` tokens of context in total."""
        if requests <= 0:
            return 0.0
        return self.linear_segment(requests, kv_tokens)[0]

    def linear_segment(self, requests: int, kv_tokens: float) -> tuple[float, float, float]:
        """Return (`step_s`, its increase per further token, the number of tokens for which that slope holds).
        `requests` is at least 1."""
        context = kv_tokens / requests
        at = min(bisect_right(CONTEXTS, context), len(CONTEXTS) - 1)
        low, high = CONTEXTS[at - 1], CONTEXTS[at]
        below, above = self._step_at(requests, at - 1), self._step_at(requests, at)
        if below == inf:
            return inf, 0.0, inf
        slope = (above - below) / (high - low)
        room = (high - context) * requests if at < len(CONTEXTS) - 1 else inf
        return below + slope * (context - low), slope / requests, room

    def _step_at(self, requests: int, at: int) -> float:
        key = requests, at
        if key not in self._steps:
            self._steps[key] = self.exact_step_s(requests, CONTEXTS[at] * requests)
        return self._steps[key]

    def exact_step_s(self, requests: float, kv_tokens: float) -> float:
        """`step_s` computed without interpolation: layers, output head, draft layer and head, one graph launch."""
        kinds, once = self.operators(requests, kv_tokens)
        if not self.microbatched(requests):
            layers = sum([kind.layers * (serial_s(kind.attention) + serial_s(kind.experts)) for kind in kinds])
            return layers + serial_s(once)
        cores, saturating = self.calibration.cube_cores, self.calibration.ub_saturating_cores
        layers = sum([2 * kind.layers * paired_s(kind.attention, kind.experts, cores, saturating) for kind in kinds])
        return layers + serial_s(once)

    def attention_cores(self, requests: float, kv_tokens: float) -> int:
        """Number of matrix cores of the attention stream in a layer with experts; all of them without microbatches."""
        current = self.calibration
        if not self.microbatched(requests):
            return current.cube_cores
        kind = self.operators(requests, kv_tokens)[0][0]
        return split_cores(kind.attention, kind.experts, current.cube_cores, current.ub_saturating_cores)

    def operators(self, requests: float, kv_tokens: float) -> tuple[list[LayerOperators], list[Operator]]:
        """Return a microbatch's operators by kind of layer, and the operators that run once per step."""
        model, current, mtp = self.model, self.calibration, self.options.mtp
        queries = 2 if mtp else 1
        part = 0.5 if self.microbatched(requests) else 1.0
        tokens = part * requests * queries
        die = self._die
        if model.dense:
            sides = decode_layer(die, model, self.exchange, tokens, kv_tokens, queries)
            return [LayerOperators(model.layers, *sides)], step_operators(die, model, current, requests, queries)
        uneven = imbalance(self.layout, model.routed_experts, requests * part * self.layout.dies, current)
        attention = attention_path(die, model, tokens, part * kv_tokens, queries)
        experts = expert_path(die, model, self.layout, self.exchange, tokens, uneven)
        drafts = model.draft_layers if mtp else 0
        kinds = [LayerOperators(model.moe_layers + drafts, attention, experts)]
        if model.dense_layers:
            kinds.append(LayerOperators(model.dense_layers, attention, dense_path(die, model, tokens)))
        return kinds, step_operators(die, model, current, requests, queries)

    def leaving_bytes(self, requests: float) -> float:
        """Bytes that each die sends to dies of other nodes in one step."""
        kinds, _ = self.operators(requests, 0.0)
        microbatches = 2 if self.microbatched(requests) else 1
        sides = [(kind.layers, each) for kind in kinds for each in (*kind.attention, *kind.experts)]
        return microbatches * sum(layers * each.leaving_bytes for layers, each in sides)

    def microbatched(self, requests: float) -> bool:
        """Whether a step with that many requests per die runs as two microbatches."""
        if self.model.dense:
            return False  # without experts there is no exchange that a second stream could hide
        if self.options.microbatch is not None:
            return self.options.microbatch
        return self.calibration.dies_per_npu * requests >= self.calibration.microbatch_from_per_npu

    @property
    def _die(self) -> Die:
        ranks = self.model.tensor_parallel if self.model.dense else self.layout.dies
        return Die(self.calibration, straggler_factor(self.calibration, ranks))
