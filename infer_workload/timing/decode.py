"""The time of one decode step.

All dies of the pool step together. A layer has two classes of work: the matrix cores and HBM (projections, attention,
experts), and the vector cores with the UB ports (norms, routing, dispatch, combine). Serially they add up. With two
microbatches the streams of the paper run side by side, the attention path of one beside the expert path of the other;
what is hidden is `overlap` of the shorter class, and every weight is read twice. With MTP each request brings two query
tokens and one more layer drafts the next, so a step yields 1 + acceptance tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.experts import ExpertLayout, imbalance_of
from infer_workload.timing.kernels import Kernels
from infer_workload.timing.model import ServedModel

KV_BUCKET = 64
"""Tokens a request: step times are kept per bucket of mean context length, evaluated at its middle."""


@dataclass(frozen=True)
class StepOptions:
    """What may be switched: `microbatch` None lets the batch decide (the paper's system: on from 16 an NPU)."""

    microbatch: bool | None = None
    mtp: bool = True
    acceptance: float | None = None


@dataclass
class DecodeTiming:
    """Step times of one decode pool under one view of the fabric."""

    model: ServedModel
    calibration: Calibration
    exchange: Exchange
    layout: ExpertLayout
    options: StepOptions = StepOptions()
    _steps: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)

    @property
    def tokens_per_step(self) -> float:
        """Tokens a request gains in one step on average."""
        return 1.0 + (self.acceptance if self.options.mtp else 0.0)

    @property
    def acceptance(self) -> float:
        given = self.options.acceptance
        return self.calibration.mtp_acceptance if given is None else given

    def step_s(self, requests: int, kv_tokens: float) -> float:
        """One step when the fullest die has `requests` requests that hold `kv_tokens` tokens together."""
        if requests <= 0:
            return 0.0
        bucket = int(kv_tokens / requests / KV_BUCKET)
        key = (requests, bucket)
        if key not in self._steps:
            self._steps[key] = self.exact_step_s(requests, (bucket + 0.5) * KV_BUCKET * requests)
        return self._steps[key]

    def exact_step_s(self, requests: float, kv_tokens: float) -> float:
        """The same without buckets: layers, output head, draft layer and head, one graph launch."""
        kernels = Kernels(self.model, self.calibration)
        queries = 2 if self.options.mtp else 1
        layers = self.model.layers + (self.model.draft_layers if self.options.mtp else 0)
        heads = 2 if self.options.mtp else 1
        layer = self._layer_s(kernels, requests, kv_tokens, queries)
        head = kernels.head_s(requests * queries)
        return layers * layer + heads * head + self.calibration.launch_ms * 1e-3

    def sent_bytes(self, requests: float) -> float:
        """What each die sends to the others over UB in one step: dispatch and combine of every layer."""
        layers = self.model.layers + (self.model.draft_layers if self.options.mtp else 0)
        tokens = requests * (2 if self.options.mtp else 1)
        current = self.calibration
        return layers * tokens * current.exchange_copies * (current.dispatch_token_bytes + current.combine_token_bytes)

    def _layer_s(self, kernels: Kernels, requests: float, kv_tokens: float, queries: int) -> float:
        if not self._microbatched(requests):
            return sum(self._streams_s(kernels, requests, kv_tokens, queries))
        matrix, vector = self._streams_s(kernels, requests / 2, kv_tokens / 2, queries)
        longer, shorter = max(matrix, vector), min(matrix, vector)
        return 2 * (longer + (1.0 - self.calibration.overlap) * shorter)

    def _streams_s(self, kernels: Kernels, requests: float, kv_tokens: float, queries: int) -> tuple[float, float]:
        """Seconds of one layer for one microbatch: the matrix class and the vector class."""
        tokens = requests * queries
        imbalance = imbalance_of(self.layout.routed_per_die, self.calibration)
        hottest = self.layout.busiest_tokens(tokens, self.model.experts_per_token, imbalance)
        arriving = tokens * self.model.experts_per_token * self.layout.dies
        matrix = (
            kernels.projections_s(tokens)
            + kernels.decode_attention_s(kv_tokens, queries)
            + kernels.experts_s(hottest, arriving, self.layout.experts_per_die)
        )
        gap = self.calibration.layer_gap_us * 1e-6
        vector = gap + kernels.vector_s(tokens) + self.exchange.dispatch_s(tokens) + self.exchange.combine_s(tokens)
        return matrix, vector

    def _microbatched(self, requests: float) -> bool:
        if self.options.microbatch is not None:
            return self.options.microbatch
        return 2 * requests >= self.calibration.microbatch_from_per_npu
