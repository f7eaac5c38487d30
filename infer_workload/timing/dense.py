"""Layers of a model without experts, split over the dies of a group (tensor parallelism).

Each die of a group of t has a t-th of the heads and of the feed-forward block and works on all tokens of its group; the
partial sums of both halves of a layer are added up over the group in an all-reduce, twice a layer, by a ring: every die
sends 2 (t - 1) / t of what is added. Norms are worked out on every die. Counted for one die with its own share of the
tokens, so a group of t dies with b requests each is a batch of t b. Seconds, bytes.
"""

from __future__ import annotations

from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode_operators import WIDE
from infer_workload.timing.model import ServedModel
from infer_workload.timing.operators import ATTENTION, EXPERTS, Die, Operator


def reduced_bytes(model: ServedModel, tokens: float) -> float:
    """Bytes that a die sends for one all-reduce, with `tokens` of its own."""
    return 2.0 * (model.tensor_parallel - 1) * tokens * model.hidden * WIDE


def attention_layer(
    die: Die, model: ServedModel, exchange: Exchange, tokens: float, operations: float, read: float
) -> list[Operator]:
    """The operators from the residual to the all-reduce of attention. `operations` are those of the attention core,
    `read` the bytes of KV cache that it reads."""
    ways, size = model.tensor_parallel, model.weight_bytes
    rows = tokens * ways
    rotated = 4 * (model.heads + model.kv_heads) * model.nope_width + model.latent_width * model.kv_bytes
    return [
        die.vector("norm", ATTENTION, rows * model.hidden * (3 * WIDE + 1)),
        die.gemm("QKV projection", ATTENTION, model.prolog_parameters / ways, rows, size),
        die.vector("rope", ATTENTION, tokens * rotated),
        die.attention(operations, read),
        die.vector("quantisation", ATTENTION, tokens * model.heads * model.value_width * (WIDE + 1)),
        die.gemm("output projection", ATTENTION, model.output_parameters / ways, rows, size),
        exchange.bulk("all-reduce", ATTENTION, reduced_bytes(model, tokens), ranks=ways),
    ]


def feed_forward(die: Die, model: ServedModel, exchange: Exchange, tokens: float) -> list[Operator]:
    """The operators of the feed-forward block and its all-reduce."""
    ways = model.tensor_parallel
    rows = tokens * ways
    return [
        die.vector("norm", EXPERTS, rows * model.hidden * (3 * WIDE + 1)),
        die.gemm("dense feed-forward", EXPERTS, model.dense_parameters / ways, rows, model.weight_bytes),
        die.vector("activation", EXPERTS, rows * model.dense_width / ways * (2 * WIDE + 1)),
        exchange.bulk("all-reduce", EXPERTS, reduced_bytes(model, tokens), ranks=ways),
    ]


def decode_layer(
    die: Die, model: ServedModel, exchange: Exchange, tokens: float, kv_tokens: float, queries: int
) -> tuple[list[Operator], list[Operator]]:
    """Attention and feed-forward operators of a decode layer; `kv_tokens` are this die's requests' tokens in the KV
    cache."""
    width = model.nope_width + model.value_width
    kept = model.latent_width * model.kv_bytes
    attention = attention_layer(
        die, model, exchange, tokens, 2.0 * model.heads * width * kv_tokens * queries, kv_tokens * kept
    )
    return attention, feed_forward(die, model, exchange, tokens)


def prefill_layer(
    die: Die, model: ServedModel, exchange: Exchange, tokens: float, pairs: float, earlier: float
) -> list[Operator]:
    """The operators of a whole prefill layer: `tokens` and (query, key) `pairs` of one die, `earlier` cached tokens of
    all its prompts."""
    width = model.nope_width + model.value_width
    kept = model.latent_width * model.kv_bytes
    read = (tokens + earlier / max(1, exchange.ranks)) * kept
    attention = attention_layer(die, model, exchange, tokens, 2.0 * model.heads * width * pairs, read)
    return [*attention, *feed_forward(die, model, exchange, tokens)]
