"""The operators of one decode layer, and those that run once per step.

`tokens` are the query tokens of one die in one microbatch (two per request with MTP); `kv_tokens` are its requests'
tokens in the KV cache. Latent attention runs absorbed: queries are folded into the latent, so the cache is read once
for all heads. The MLA prolog is one fused operator (P), shown here in parts. Quantisation of activations is counted in
the norm or projection it is fused with, and in dispatch. Activations between operators are BF16; results of matrix
operators stay in L2 and are counted where a vector operator reads them.
"""

from __future__ import annotations

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.experts import ExpertLayout
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import ATTENTION, EXPERTS, STEP, Die, Operator

WIDE = 2
"""Bytes of a BF16 activation."""
PAYLOAD_WIDTH = 7168
"""Hidden width of the published dispatch and combine payloads; other models' payloads are scaled in proportion."""
ROUTER = 4
"""Bytes of a router weight or score: gating stays in FP32 (P keeps norm and gating in high precision)."""


def attention_path(die: Die, model: ServedModel, tokens: float, kv_tokens: float, queries: int) -> list[Operator]:
    """The operators from the residual to the output of attention."""
    heads, size = model.heads, model.weight_bytes
    kept = model.latent_width * model.kv_bytes
    if model.latent:
        width = 2 * model.kv_rank + model.rope_width
        rotated = 3 * model.query_rank + 4 * heads * model.rope_width + 2 * kept
    else:
        width = model.nope_width + model.value_width
        rotated = 4 * (heads + model.kv_heads) * model.nope_width + kept
    path = [
        die.vector("norm", ATTENTION, tokens * model.hidden * (3 * WIDE + 1)),
        die.gemm("MLA prolog" if model.latent else "QKV projection", ATTENTION, model.prolog_parameters, tokens, size),
        die.vector("rope", ATTENTION, tokens * rotated, fused=model.latent),
    ]
    if model.latent:
        path.append(die.gemm("key absorption", ATTENTION, model.key_up_parameters, tokens, size, fused=True))
    path.append(die.attention(2.0 * heads * width * kv_tokens * queries, kv_tokens * kept))
    if model.latent:
        path.append(die.gemm("value projection", ATTENTION, model.value_up_parameters, tokens, size))
    path += [
        die.vector("quantisation", ATTENTION, tokens * heads * model.value_width * (WIDE + 1)),
        die.gemm("output projection", ATTENTION, model.output_parameters, tokens, size),
    ]
    return path


def expert_path(
    die: Die, model: ServedModel, layout: ExpertLayout, exchange: Exchange, tokens: float, imbalance: float
) -> list[Operator]:
    """The operators from the output of attention through the experts and back, for the busiest die."""
    routed = layout.routed_rows(tokens, model.experts_per_token, imbalance)
    touched = min(float(layout.routed_per_die), tokens * model.experts_per_token * layout.dies)
    copies = sent_copies(model, layout)
    experts = [die.gemm("routed experts", EXPERTS, *_experts(model, routed, touched))]
    rows = routed
    if model.shared_experts:
        shared = layout.shared_rows(tokens)
        alone = die.gemm("shared expert", EXPERTS, *_experts(model, shared, model.shared_experts))
        if not layout.shared_dies:
            experts.append(alone)
            rows = routed + shared
        elif alone.seconds() > experts[0].seconds():
            experts, rows = [alone], shared
    return [
        die.vector("norm", EXPERTS, tokens * model.hidden * 4 * WIDE),
        die.gemm("gate", EXPERTS, model.hidden * model.routed_experts, tokens, ROUTER, wide=True),
        die.vector("top-k", EXPERTS, tokens * model.routed_experts * 2 * ROUTER),
        exchange.dispatch(tokens, copies),
        *experts,
        die.vector("activation", EXPERTS, rows * model.expert_width * (2 * WIDE + 1)),
        exchange.combine(tokens, copies),
    ]


def sent_copies(model: ServedModel, layout: ExpertLayout) -> float:
    """Copies of a token sent to experts, in payloads of PAYLOAD_WIDTH; a shared expert on the same die needs no
    copy."""
    copies = model.experts_per_token + (model.shared_experts if layout.shared_dies else 0)
    return copies * model.hidden / PAYLOAD_WIDTH


def _experts(model: ServedModel, rows: float, experts: float) -> tuple[float, float, float]:
    """(parameters, rows, bytes per parameter) of a grouped product: the weights of each used expert are read once."""
    return model.expert_parameters, rows, model.weight_bytes * max(1.0, experts)


def dense_path(die: Die, model: ServedModel, tokens: float) -> list[Operator]:
    """The operators of the feed-forward block in a layer without experts."""
    return [
        die.vector("norm", EXPERTS, tokens * model.hidden * (3 * WIDE + 1)),
        die.gemm("dense feed-forward", EXPERTS, model.dense_parameters, tokens, model.weight_bytes),
        die.vector("activation", EXPERTS, tokens * model.dense_width * (2 * WIDE + 1)),
    ]


def step_operators(
    die: Die, model: ServedModel, calibration: Calibration, requests: float, queries: int
) -> list[Operator]:
    """The operators that run once per step: heads and sampling of the model and of its draft layer, the draft layer's
    input projection, the graph launch."""
    tokens = requests * queries
    drafts = model.draft_layers if queries > 1 else 0
    passes = model.vocabulary * 4 * calibration.sampling_passes
    once = [
        die.gemm("LM head", STEP, model.head_parameters, tokens, model.head_bytes, wide=True),
        die.vector("sampling", STEP, tokens * passes),
        Operator("graph launch", STEP, "host", calibration.launch_ms * 1e-3),
    ]
    if drafts:
        once += [
            die.gemm("MTP input projection", STEP, 2 * model.hidden * model.hidden, requests, model.weight_bytes),
            die.gemm("MTP head", STEP, model.head_parameters, requests, model.head_bytes, wide=True),
            die.vector("MTP sampling", STEP, requests * passes),
        ]
    return once
