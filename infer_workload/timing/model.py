"""The served model: its dimensions, and the sizes that follow from them.

Its file in `models/` gives every dimension with its source. A `ServedModel` computes the size of a layer's weights, the
bytes per token in the KV cache, and the weights on one die for a given number of experts. It computes no times.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from infer_workload.timing.data_files import BadDataFile, list_packaged, locate, number, read_document

LATENT, GROUPED = "latent", "grouped"
"""Kinds of attention: one latent per token shared by all heads (MLA), or the keys and values of a few heads (GQA)."""


@dataclass(frozen=True)
class ServedModel:
    """Dimensions of one model. Widths are in elements, sizes in bytes."""

    name: str
    attention: str
    parameters_total: float
    parameters_active: float
    layers: int
    dense_layers: int
    draft_layers: int
    hidden: int
    dense_width: int
    expert_width: int
    routed_experts: int
    experts_per_token: int
    shared_experts: int
    heads: int
    kv_heads: int
    query_rank: int
    kv_rank: int
    rope_width: int
    nope_width: int
    value_width: int
    vocabulary: int
    context_length: int
    weight_bytes: int
    head_bytes: int
    kv_bytes: int
    tensor_parallel: int = 1
    """Number of dies that share one copy of a model without experts."""

    @property
    def dense(self) -> bool:
        """Whether no layer has experts."""
        return not self.routed_experts

    @property
    def latent(self) -> bool:
        return self.attention == LATENT

    @property
    def attention_parameters(self) -> int:
        """Parameters of one attention block: the projections before the core and after it."""
        return self.prolog_parameters + self.key_up_parameters + self.value_up_parameters + self.output_parameters

    @property
    def prolog_parameters(self) -> int:
        """Projections from the hidden state to the queries and to the cached values: low-rank with latent attention."""
        if not self.latent:
            return self.hidden * (self.heads * self.nope_width + self.kv_heads * (self.nope_width + self.value_width))
        query = self.hidden * self.query_rank + self.query_rank * self.heads * (self.nope_width + self.rope_width)
        return query + self.hidden * self.latent_width

    @property
    def key_up_parameters(self) -> int:
        """From the latent to the heads' keys; decode folds it into the queries."""
        return self.kv_rank * self.heads * self.nope_width if self.latent else 0

    @property
    def value_up_parameters(self) -> int:
        """From the latent to the heads' values; decode applies it after the core."""
        return self.kv_rank * self.heads * self.value_width if self.latent else 0

    @property
    def output_parameters(self) -> int:
        return self.heads * self.value_width * self.hidden

    @property
    def dense_parameters(self) -> int:
        """Parameters of the feed-forward block of a layer without experts: gate, up and down."""
        return 3 * self.hidden * self.dense_width

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert in one layer: gate, up and down."""
        return 3 * self.hidden * self.expert_width

    @property
    def head_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers

    @property
    def latent_width(self) -> int:
        """Elements per token in the KV cache of one layer: the latent and its rotary part, or keys and values."""
        if self.latent:
            return self.kv_rank + self.rope_width
        return self.kv_heads * (self.nope_width + self.value_width)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache for one token over all layers (70,272 for DeepSeek-R1 in BF16)."""
        return self.latent_width * self.kv_bytes * self.layers

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert in all layers with experts, including the draft layer."""
        return self.expert_parameters * self.weight_bytes * (self.moe_layers + self.draft_layers)

    def die_weight_bytes(self, experts: int) -> int:
        """Bytes of weights on a die that holds `experts` experts (shared ones included) and a copy of everything
        else."""
        attention = self.attention_parameters * self.weight_bytes * (self.layers + self.draft_layers)
        dense = self.dense_parameters * self.weight_bytes * self.dense_layers
        heads = 2 * self.head_parameters * self.head_bytes
        return (attention + dense) // self.tensor_parallel + heads + experts * self.expert_bytes


MAY_BE_ZERO = frozenset(
    (
        "dense_layers",
        "draft_layers",
        "shared_experts",
        "query_rank",
        "kv_rank",
        "rope_width",
        "dense_width",
        "routed_experts",
        "experts_per_token",
        "expert_width",
    )
)


HAVE_DEFAULTS = frozenset(field.name for field in fields(ServedModel) if field.default is not MISSING)


def read_model(name: str) -> ServedModel:
    """Read the packaged model of that name, or the user's file at that path (ending in .yaml).

    Raises UnknownDataFile if there is none, and BadDataFile naming the field that is missing, unknown or invalid.
    """
    file = locate("models", name)
    read = read_document(file)
    known = {field.name: field.type for field in fields(ServedModel)}
    for field in read:
        if field not in known:
            raise BadDataFile(file.name, field, "no such field")
    values: dict[str, Any] = {}
    for field, kind in known.items():
        if field not in read:
            if field in HAVE_DEFAULTS:
                continue
            raise BadDataFile(file.name, field, "missing")
        value = read[field]["value"]
        if kind == "str":
            values[field] = value
        else:
            least = 0 if field in MAY_BE_ZERO else 1
            values[field] = number(file.name, field, value, least=least, whole=kind == "int")
    _check(file.name, values)
    return ServedModel(**values)


def _check(file: str, values: dict[str, Any]) -> None:
    """Check constraints between fields. Raises BadDataFile."""
    if values["attention"] not in (LATENT, GROUPED):
        raise BadDataFile(file, "attention", f"must be {LATENT} or {GROUPED}, not {values['attention']!r}")
    if values["attention"] == LATENT and not (values["query_rank"] and values["kv_rank"]):
        raise BadDataFile(file, "kv_rank", "kv_rank and query_rank must be at least 1 with latent attention")
    if values["heads"] % values["kv_heads"]:
        raise BadDataFile(file, "kv_heads", f"must be a divisor of the {values['heads']} heads")
    if values["experts_per_token"] > values["routed_experts"]:
        raise BadDataFile(file, "experts_per_token", f"must be at most the {values['routed_experts']} routed experts")
    dense = not values["routed_experts"]
    if dense and values["dense_layers"] != values["layers"]:
        raise BadDataFile(file, "dense_layers", f"must be all {values['layers']} layers without experts")
    if not dense and values["dense_layers"] >= values["layers"]:
        raise BadDataFile(file, "dense_layers", f"must be fewer than the {values['layers']} layers")
    if not dense and not (values["experts_per_token"] and values["expert_width"]):
        raise BadDataFile(file, "experts_per_token", "experts_per_token and expert_width must be above 0 with experts")
    if dense and (values["shared_experts"] or values["draft_layers"]):
        raise BadDataFile(file, "shared_experts", "shared_experts and draft_layers must be 0 without experts")
    ways = values.get("tensor_parallel", 1)
    if ways > 1 and (not dense or values["heads"] % ways):
        raise BadDataFile(file, "tensor_parallel", f"must be 1 with experts, else divide the {values['heads']} heads")
    if values["dense_layers"] and not values["dense_width"]:
        raise BadDataFile(file, "dense_width", "must be at least 1 with dense layers")
    if values["parameters_active"] > values["parameters_total"]:
        raise BadDataFile(file, "parameters_active", "must be at most parameters_total")


def catalogue(folder: Path | None = None) -> dict[str, ServedModel]:
    """Return every model by name: the packaged ones and those in `folder`, which win where names are equal.

    Raises BadDataFile, naming the field, for an invalid file in the folder.
    """
    found = {name: load_model(name) for name in list_packaged("models")}
    for file in sorted(folder.glob("*.yaml")) if folder is not None else ():
        model = read_model(str(file))
        found[model.name] = model
    return found


MODEL = "deepseek-r1"


@cache
def load_model(name: str = MODEL) -> ServedModel:
    """`read_model`, cached."""
    return read_model(name)
