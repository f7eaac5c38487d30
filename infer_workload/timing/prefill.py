"""The time of one prefill chunk on an instance whose dies share it.

Prompts are split over all dies, so every die has the mean amount of work whatever the prompt lengths; only the experts
are uneven, and more so the fewer prompts a chunk has (`routing`). With two microbatches, the matrix cores, vector cores
and SDMA engines each serve one microbatch at a time; the few layers without experts are assumed to overlap equally
well. Tokens already in the context cache are not computed, but they are fetched first, and every new token attends to
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode import straggler_factor
from infer_workload.timing.dense import prefill_layer
from infer_workload.timing.experts import ExpertLayout
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import Die, Operator
from infer_workload.timing.prefill_operators import attention_operators, dense_operators, expert_operators
from infer_workload.timing.routing import imbalance
from infer_workload.timing.schedule import pipelined_s, serial_s

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, *(round(64 * 1.25**at) for at in range(40)))
EARLIER_TOKENS = (0, *(round(512 * 1.5**at) for at in range(18)))
"""Numbers of new and of earlier tokens at which a chunk of one prompt is evaluated."""

PLANNED_MAX = 256
"""Maximum size of the cache of planned chunks' times."""


@lru_cache(maxsize=64)
def _evaluated_of(*_: Hashable) -> dict[tuple[int, ...], float]:
    return {}


@dataclass(frozen=True)
class PrefillTiming:
    """Chunk times of one prefill instance under one view of the fabric.

    `balanced` assumes perfect expert balance, as the paper's second prefill figure does. With `microbatch` None the
    faster variant is taken: splitting a small chunk would only read the weights twice. `heads_exchange` connects the
    dies that share a prompt, if these are not all dies of the instance.
    """

    model: ServedModel
    calibration: Calibration
    exchange: Exchange
    layout: ExpertLayout
    balanced: bool = False
    microbatch: bool | None = None
    heads_exchange: Exchange | None = None

    def chunk_s(self, parts: Sequence[tuple[int, int]]) -> float:
        """Time of one pass over `parts`: (new tokens, earlier tokens of the same prompt) for each prompt in the chunk.

        The usual chunk, of one prompt, is interpolated linearly between lengths that are evaluated once.
        """
        if len(parts) == 1 and SIZES[0] <= parts[0][0] <= SIZES[-1]:
            return self._interpolate(*parts[0], self._at)
        return self.exact_chunk_s(parts)

    def part_s(self, new: int, past: int, budget: int) -> float:
        """A prompt's share of the time of a chunk filled with such prompts up to `budget` tokens: its cost to a busy
        instance. Interpolated as in `chunk_s`."""
        return self._interpolate(min(new, SIZES[-1]), past, lambda row, column: self._part_at(row, column, budget))

    def planned_s(self, parts: Sequence[tuple[int, int]]) -> float:
        """`chunk_s` for planned chunks, which are looked up repeatedly, so results are cached."""
        if len(parts) == 1:
            return self.chunk_s(parts)
        work = self._work(parts)
        if work is None:
            return 0.0
        if work not in self._planned:
            if len(self._planned) >= PLANNED_MAX:
                self._planned.clear()
            self._planned[work] = self._chunk_s(*work)
        return self._planned[work]

    @cached_property
    def _planned(self) -> dict[tuple[float, float, float, float], float]:
        return {}

    def exact_chunk_s(self, parts: Sequence[tuple[int, int]]) -> float:
        """`chunk_s` computed without interpolation."""
        work = self._work(parts)
        return 0.0 if work is None else self._chunk_s(*work)

    def _interpolate(self, new: int, past: int, at: Callable[[int, int], float]) -> float:
        """Interpolate linearly between the values of `at` at the neighbouring grid points."""
        row = min(bisect_right(SIZES, new), len(SIZES) - 1)
        column = min(bisect_right(EARLIER_TOKENS, past), len(EARLIER_TOKENS) - 1)
        low, left = SIZES[row - 1], EARLIER_TOKENS[column - 1]
        up, right = (new - low) / (SIZES[row] - low), (past - left) / (EARLIER_TOKENS[column] - left)
        one, other = (
            (1.0 - right) * at(size, column - 1) + right * at(size, column) if right else at(size, column - 1)
            for size in (row - 1, row)
        )
        if one == inf:
            return inf
        return (1.0 - up) * one + up * other

    def _at(self, row: int, column: int) -> float:
        key = (row, column)
        if key not in self._evaluated:
            self._evaluated[key] = self.exact_chunk_s([(SIZES[row], EARLIER_TOKENS[column])])
        return self._evaluated[key]

    def _part_at(self, row: int, column: int, budget: int) -> float:
        key = row, column, budget
        if key not in self._evaluated:
            together = max(1, budget // SIZES[row])
            work = self._work([(SIZES[row], EARLIER_TOKENS[column])])
            whole_s = self._chunk_s(*(each * together for each in work)) if work is not None else 0.0
            self._evaluated[key] = whole_s / together
        return self._evaluated[key]

    @cached_property
    def _evaluated(self) -> dict[tuple[int, ...], float]:
        """Cache shared by all instances of one kind, which have different nodes but the same times."""
        exchanges = [
            (type(each), each.ranks, each.rates_gbps)
            for each in (self.exchange, self.heads_exchange)
            if each is not None
        ]
        return _evaluated_of(
            self.model, self.calibration, tuple(exchanges), self.layout, self.balanced, self.microbatch
        )

    def operators(self, parts: Sequence[tuple[int, int]], share: float = 1.0) -> tuple[list[Operator], list[Operator]]:
        """Return the operators of a layer with experts and of one without, for that share of the chunk."""
        work = self._work(parts)
        return self._layers(share, *work) if work else ([], [])

    @cached_property
    def leaving_bytes_per_token(self) -> float:
        """Bytes that each die sends to dies of other nodes in one pass, per token of a full chunk on all dies."""
        tokens = self.calibration.prefill_tokens_per_npu // self.calibration.dies_per_npu * self.layout.dies
        sparse, dense = self.operators([(tokens, 0)])
        layers = ((self.model.moe_layers, sparse), (self.model.dense_layers, dense))
        return sum(count * sum(each.leaving_bytes for each in operators) for count, operators in layers) / tokens

    def _work(self, parts: Sequence[tuple[int, int]]) -> tuple[float, float, float, float] | None:
        """Return (tokens per die, query-key pairs per die, earlier tokens of all prompts, streams of text), or None if
        there are no tokens."""
        tokens, pairs, earlier, streams = 0.0, 0.0, 0.0, 0.0
        passage = self.calibration.passage_tokens
        for new, past in parts:
            tokens += new
            earlier += past
            pairs += new * past + new * new / 2
            streams += max(1.0, new / passage)
        dies = self.layout.dies
        return (tokens / dies, pairs / dies, earlier, streams) if tokens else None

    def paired(self, parts: Sequence[tuple[int, int]]) -> bool:
        """Whether the chunk runs as two microbatches."""
        work = self._work(parts)
        if self.microbatch is None:
            return work is not None and self._paired_s(*work) < self._serial_s(*work)
        return self.microbatch

    def _chunk_s(self, *work: float) -> float:
        launch = self.calibration.launch_ms * 1e-3
        if self.microbatch is None:
            return min(self._serial_s(*work), self._paired_s(*work)) + launch
        return (self._paired_s(*work) if self.microbatch else self._serial_s(*work)) + launch

    def _serial_s(self, *work: float) -> float:
        sparse, dense = self._layers(1.0, *work)
        return self.model.moe_layers * serial_s(sparse) + self.model.dense_layers * serial_s(dense)

    def _paired_s(self, *work: float) -> float:
        if self.model.dense:
            return self._serial_s(*work)
        sparse, dense = self._layers(0.5, *work)
        pair, alone = pipelined_s(sparse), serial_s(sparse)
        return self.model.moe_layers * pair + self.model.dense_layers * serial_s(dense) * pair / alone

    def _layers(
        self, share: float, tokens: float, pairs: float, earlier: float, streams: float
    ) -> tuple[list[Operator], list[Operator]]:
        model, current, layout = self.model, self.calibration, self.layout
        if model.dense:
            alone = Die(current, straggler_factor(current, model.tensor_parallel))
            return [], prefill_layer(alone, model, self.exchange, share * tokens, share * pairs, share * earlier)
        die = Die(current, straggler_factor(current, layout.dies))
        uneven = 1.0 if self.balanced else imbalance(layout, model.routed_experts, streams * share, current)
        among = self.heads_exchange or self.exchange
        attention = attention_operators(die, model, among, share * tokens, share * pairs, share * earlier)
        experts = expert_operators(die, model, layout, self.exchange, share * tokens, uneven)
        return attention + experts, attention + dense_operators(die, model, share * tokens)
