"""The operators of one decode layer, and those of a whole step.

`tokens` are query tokens of one die in one microbatch (two a request with MTP), `kv_tokens` what its requests keep in
the cache. Latent attention runs absorbed: queries are folded into the latent, so the cache is read once for all heads.
The MLA prolog is one fused operator (P), its parts shown apart. What quantises activations is part of the norm or
projection it is fused with, and of dispatch. Activations between operators are BF16; what matrix operators write stays
in L2 and is counted where a vector operator reads it.
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
"""Hidden width of the published payloads of dispatch and combine; other models' are in proportion."""
ROUTER = 4
"""Bytes of a router weight and score: gating stays FP32 (P keeps norm and gating wide)."""


def attention_path(die: Die, model: ServedModel, tokens: float, kv_tokens: float, queries: int) -> list[Operator]:
    """From the residual to the output of attention."""
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
    """From the output of attention through the experts back to it; the busiest die's share of them."""
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
    """Copies of a token sent to experts, in payloads of PAYLOAD_WIDTH: a shared expert on the same die needs none."""
    copies = model.experts_per_token + (model.shared_experts if layout.shared_dies else 0)
    return copies * model.hidden / PAYLOAD_WIDTH


def _experts(model: ServedModel, rows: float, experts: float) -> tuple[float, float, float]:
    """(parameters, rows, bytes a parameter) of a grouped product: every touched expert's weights are read once."""
    return model.expert_parameters, rows, model.weight_bytes * max(1.0, experts)


def dense_path(die: Die, model: ServedModel, tokens: float) -> list[Operator]:
    """The feed-forward block of a layer without experts."""
    return [
        die.vector("norm", EXPERTS, tokens * model.hidden * (3 * WIDE + 1)),
        die.gemm("dense feed-forward", EXPERTS, model.dense_parameters, tokens, model.weight_bytes),
        die.vector("activation", EXPERTS, tokens * model.dense_width * (2 * WIDE + 1)),
    ]


def step_operators(
    die: Die, model: ServedModel, calibration: Calibration, requests: float, queries: int
) -> list[Operator]:
    """Once a step: heads and sampling of the model and its draft, the draft's input projection, the launch."""
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
