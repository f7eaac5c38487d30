"""The time of one kernel on one die, from its work and the die's rates.

A kernel is bound by its arithmetic or by its traffic to HBM, whichever takes longer; both rates are the published
peaks times the published efficiencies. All times are seconds, work is counted for one layer on one die.
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.model import ServedModel


@dataclass(frozen=True)
class Kernels:
    """The kernels of one layer of `model` on a die as `calibration` describes it."""

    model: ServedModel
    calibration: Calibration

    def hbm_s(self, size_bytes: float) -> float:
        """Reading that many bytes from HBM."""
        return size_bytes / (self.calibration.hbm_gbps * 1e9 * self.calibration.memory_efficiency)

    def gemm_s(self, parameters: float, tokens: float) -> float:
        """An INT8 matrix product of `tokens` rows with `parameters` weights that are read once."""
        rate = self.calibration.int8_tops * 1e12 * self.calibration.gemm_efficiency
        return max(2.0 * parameters * tokens / rate, self.hbm_s(parameters * self.model.weight_bytes))

    def projections_s(self, tokens: float) -> float:
        """The projections around attention."""
        return self.gemm_s(self.model.attention_parameters, tokens)

    def decode_attention_s(self, kv_tokens: float, queries: int) -> float:
        """Absorbed latent attention of `queries` query tokens a request over `kv_tokens` held tokens on the die.

        Scores run over the latent and its rotary part, the weighted sum over the latent: 2 x heads x (2 x 512 + 64)
        operations for a query token and a held one. The cache is read once, whatever the number of queries.
        """
        model = self.model
        work = 2.0 * model.heads * (2 * model.kv_rank + model.rope_width) * kv_tokens * queries
        return max(self._attention_s(work), self.hbm_s(kv_tokens * model.latent_width * model.kv_bytes))

    def prefill_attention_s(self, pairs: float) -> float:
        """Attention of prompt tokens in its plain form, over `pairs` (query token, earlier token) pairs."""
        model = self.model
        return self._attention_s(2.0 * model.heads * (model.nope_width + model.rope_width + model.value_width) * pairs)

    def experts_s(self, hottest_tokens: float, total_tokens: float, experts: int) -> float:
        """Experts of one die: `hottest_tokens` is what the busiest die computes, weights of all `experts` are read.

        `total_tokens` bounds how many of them are touched at all.
        """
        touched = min(float(experts), total_tokens)
        rate = self.calibration.int8_tops * 1e12 * self.calibration.gemm_efficiency
        compute = 2.0 * self.model.expert_parameters * hottest_tokens / rate
        return max(compute, self.hbm_s(touched * self.model.expert_parameters * self.model.weight_bytes))

    def head_s(self, tokens: float) -> float:
        """The output head in BF16 for `tokens` rows."""
        rate = self.calibration.bf16_tflops * 1e12 * self.calibration.gemm_efficiency
        size = self.model.head_parameters * self.model.head_bytes
        return max(2.0 * self.model.head_parameters * tokens / rate, self.hbm_s(size))

    def vector_s(self, tokens: float) -> float:
        """Vector work: norms, quantisation, rotary embedding, routing."""
        return self.calibration.vector_us * 1e-6 * tokens

    def _attention_s(self, operations: float) -> float:
        rate = self.calibration.bf16_tflops * 1e12 * self.calibration.attention_compute_efficiency
        return operations / rate
