"""The time of one prefill chunk on an instance of dies that share it.

Prompts are split along their length over all dies (the SP-TP-SP scheme of the paper), so a die has the mean of the
work whatever the lengths are; only the experts are uneven. As in decode there are two classes of work, and with two
microbatches the SDMA engines move tokens while the matrix cores compute. Tokens already in the context cache are not
computed, but they are fetched first, and every new token attends to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.experts import ExpertLayout, imbalance_of
from infer_workload.timing.kernels import Kernels
from infer_workload.timing.model import ServedModel


@dataclass(frozen=True)
class PrefillTiming:
    """Chunk times of one prefill instance under one view of the fabric.

    `balanced` assumes perfect expert balance, as the paper's second prefill figure does. `microbatch` None takes the
    faster way: splitting a small chunk would only read the weights twice.
    """

    model: ServedModel
    calibration: Calibration
    exchange: Exchange
    layout: ExpertLayout
    balanced: bool = False
    microbatch: bool | None = None

    def chunk_s(self, parts: Iterable[tuple[int, int]]) -> float:
        """One pass over `parts`: (new tokens, earlier tokens of the same prompt) for each prompt in the chunk."""
        tokens, pairs, earlier = 0.0, 0.0, 0.0
        for new, past in parts:
            tokens += new
            earlier += past
            pairs += new * past + new * new / 2
        if tokens == 0:
            return 0.0
        dies = self.layout.dies
        layer = self._layer_s(tokens / dies, pairs / dies, earlier)
        return self.model.layers * layer + self.calibration.launch_ms * 1e-3

    def _layer_s(self, tokens: float, pairs: float, earlier: float) -> float:
        serial = sum(self._streams_s(tokens, pairs, earlier))
        matrix, vector = self._streams_s(tokens / 2, pairs / 2, earlier / 2)
        paired = 2 * (max(matrix, vector) + (1.0 - self.calibration.overlap) * min(matrix, vector))
        if self.microbatch is None:
            return min(serial, paired)
        return paired if self.microbatch else serial

    def _streams_s(self, tokens: float, pairs: float, earlier: float) -> tuple[float, float]:
        """Seconds of one layer: `tokens` and `pairs` of one die, `earlier` tokens of all prompts together.

        Attention is split by heads, so every die needs the latents of all earlier tokens: they are gathered over UB.
        """
        current, model = self.calibration, self.model
        kernels = Kernels(model, current)
        imbalance = 1.0 if self.balanced else imbalance_of(self.layout.routed_per_die, current)
        rows = tokens * (model.experts_per_token + model.shared_experts)
        matrix = (
            kernels.projections_s(tokens)
            + kernels.prefill_attention_s(pairs)
            + kernels.experts_s(rows * imbalance, rows * self.layout.dies, self.layout.experts_per_die)
        )
        exchanged = current.exchange_copies * (current.dispatch_token_bytes + current.combine_token_bytes)
        vector = (
            current.layer_gap_us * 1e-6
            + kernels.vector_s(tokens)
            + self.exchange.bulk_s(tokens, exchanged, imbalance)
            + self.exchange.bulk_s(tokens, 2 * model.hidden * 2)
            + self.exchange.bulk_s(earlier, model.latent_width * model.kv_bytes)
        )
        return matrix, vector
