"""The operators of one prefill layer on one die of an instance.

Prompts are split by sequence over all dies for the projections, and by heads for the attention core (the paper's
SP-TP-SP scheme): every die gathers the low-rank queries and latents of all tokens, and the outputs return in an
all-to-all. In both, a die's own part is not transferred. The token exchange with the experts runs on the SDMA engines
without fusion: the vector cores reorder the tokens before it and after it.
"""

from __future__ import annotations

from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode_operators import PAYLOAD_WIDTH, ROUTER, WIDE, dense_path
from infer_workload.timing.experts import ExpertLayout
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import ATTENTION, EXPERTS, Die, Operator


def attention_operators(
    die: Die, model: ServedModel, exchange: Exchange, tokens: float, pairs: float, earlier: float
) -> list[Operator]:
    """The operators of attention: `tokens` and (query, key) `pairs` of one die, and the `earlier` cached tokens of all
    prompts, whose latents every die needs."""
    heads, size, dies = model.heads, model.weight_bytes, exchange.ranks
    kept = model.latent_width * model.kv_bytes
    outputs = heads * model.value_width * WIDE
    everyone = tokens * dies
    others = (dies - 1) / dies  # a die's own part stays where it is
    if model.latent:
        down = model.hidden * (model.query_rank + model.latent_width)
        up = model.attention_parameters - down - model.output_parameters
        gathered = everyone * (model.query_rank + kept)
        widths = model.nope_width + model.rope_width
        rotated = 3 * model.query_rank + 4 * heads * model.rope_width + 2 * kept
    else:
        down, up = model.prolog_parameters, 0
        gathered = everyone * (heads * model.nope_width * WIDE / dies + kept)
        widths = model.nope_width
        rotated = 4 * (heads + model.kv_heads) * model.nope_width + kept
    path = [
        die.vector("norm", ATTENTION, tokens * model.hidden * (3 * WIDE + 1)),
        die.gemm("MLA prolog" if model.latent else "QKV projection", ATTENTION, down, tokens, size),
        exchange.bulk("all-gather", ATTENTION, others * (gathered + earlier * kept)),
    ]
    if up:
        path.append(die.gemm("head projections", ATTENTION, up, tokens, size))
    operations = 2.0 * heads * (widths + model.value_width) * pairs
    return [
        *path,
        die.vector("rope", ATTENTION, tokens * rotated),
        die.attention(operations, (everyone + earlier) * kept),
        exchange.bulk("all-to-all", ATTENTION, others * tokens * outputs),
        die.vector("quantisation", ATTENTION, tokens * heads * model.value_width * (WIDE + 1)),
        die.gemm("output projection", ATTENTION, model.output_parameters, tokens, size),
    ]


def expert_operators(
    die: Die, model: ServedModel, layout: ExpertLayout, exchange: Exchange, tokens: float, imbalance: float
) -> list[Operator]:
    """The operators of the experts on the busiest die, which computes and receives `imbalance` times the mean."""
    sent = tokens * model.experts_per_token * imbalance
    copies = model.experts_per_token * model.hidden / PAYLOAD_WIDTH
    routed = layout.routed_rows(tokens, model.experts_per_token, imbalance)
    touched = min(float(layout.routed_per_die), max(1.0, tokens * model.experts_per_token * layout.dies))
    experts = [
        die.gemm("routed experts", EXPERTS, model.expert_parameters, routed, model.weight_bytes * touched),
    ]
    rows = routed
    if model.shared_experts:
        shared = model.expert_parameters * model.shared_experts
        experts.insert(0, die.gemm("shared expert", EXPERTS, shared, tokens, model.weight_bytes))
        rows += tokens
    return [
        die.vector("norm", EXPERTS, tokens * model.hidden * 4 * WIDE),
        die.gemm("gate", EXPERTS, model.hidden * model.routed_experts, tokens, ROUTER, wide=True),
        die.vector("top-k", EXPERTS, tokens * model.routed_experts * 2 * ROUTER),
        die.vector("token order", EXPERTS, sent * model.hidden * (WIDE + 1)),
        exchange.bulk_dispatch(tokens * imbalance, copies),
        *experts,
        die.vector("activation", EXPERTS, rows * model.expert_width * (2 * WIDE + 1)),
        exchange.bulk_combine(tokens * imbalance, copies),
        die.vector("weighted sum", EXPERTS, tokens * (model.experts_per_token + 2) * model.hidden * WIDE),
    ]


def dense_operators(die: Die, model: ServedModel, tokens: float) -> list[Operator]:
    """The operators of the feed-forward block in a layer without experts."""
    return dense_path(die, model, tokens)
