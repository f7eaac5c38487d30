"""The served model: its shape, and what follows from it by counting.

Its file in `models/` names every count with its source. A `ServedModel` says how large a layer's weights are, how many
bytes a token leaves in the KV cache, and what the weights of one die take for a given number of experts. Times are no
business of this file.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from infer_workload.timing.data_files import BadDataFile, document, located, names, number

LATENT, GROUPED = "latent", "grouped"
"""Kinds of attention: one latent a token that all heads share (MLA), or keys and values of a few heads (GQA)."""


@dataclass(frozen=True)
class ServedModel:
    """Counts of one model; all widths in elements, all sizes in bytes."""

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
    """Dies that share a copy of a model without experts."""

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
        """Projections from the hidden state to queries and to what is kept: low-rank ones with latent attention."""
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
        """Elements a token keeps in the KV cache of one layer: the latent and its rotary part, or keys and values."""
        if self.latent:
            return self.kv_rank + self.rope_width
        return self.kv_heads * (self.nope_width + self.value_width)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache for one token over all layers (70,272 for DeepSeek-R1 in BF16)."""
        return self.latent_width * self.kv_bytes * self.layers

    @property
    def expert_bytes(self) -> int:
        """One expert in all layers that have experts, the draft layer among them."""
        return self.expert_parameters * self.weight_bytes * (self.moe_layers + self.draft_layers)

    def die_weight_bytes(self, experts: int) -> int:
        """Weights on a die that holds `experts` experts (shared ones counted) and a copy of everything else."""
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
    """The model of that name, or of a file of one's own (a path that ends in .yaml).

    Raises UnknownDataFile where there is none, BadDataFile naming the field that is missing, unknown or wrong.
    """
    file = located("models", name)
    read = document(file)
    known = {field.name: field.type for field in fields(ServedModel)}
    for field in read:
        if field not in known:
            raise BadDataFile(file.name, field, "there is no such field")
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
    """What fields must hold together."""
    if values["attention"] not in (LATENT, GROUPED):
        raise BadDataFile(file, "attention", f"{LATENT} or {GROUPED} is accepted, not {values['attention']!r}")
    if values["attention"] == LATENT and not (values["query_rank"] and values["kv_rank"]):
        raise BadDataFile(file, "kv_rank", "latent attention has ranks of at least 1")
    if values["heads"] % values["kv_heads"]:
        raise BadDataFile(file, "kv_heads", f"a divisor of the {values['heads']} heads is accepted")
    if values["experts_per_token"] > values["routed_experts"]:
        raise BadDataFile(file, "experts_per_token", f"at most the {values['routed_experts']} routed experts")
    dense = not values["routed_experts"]
    if dense and values["dense_layers"] != values["layers"]:
        raise BadDataFile(file, "dense_layers", f"all {values['layers']} layers where there are no experts")
    if not dense and values["dense_layers"] >= values["layers"]:
        raise BadDataFile(file, "dense_layers", f"fewer than the {values['layers']} layers are accepted")
    if not dense and not (values["experts_per_token"] and values["expert_width"]):
        raise BadDataFile(file, "experts_per_token", "at least 1, and experts of some width, where there are experts")
    if dense and (values["shared_experts"] or values["draft_layers"]):
        raise BadDataFile(file, "shared_experts", "no shared experts and no draft layers where there are no experts")
    ways = values.get("tensor_parallel", 1)
    if ways > 1 and (not dense or values["heads"] % ways):
        raise BadDataFile(file, "tensor_parallel", f"1 with experts, else a divisor of the {values['heads']} heads")
    if values["dense_layers"] and not values["dense_width"]:
        raise BadDataFile(file, "dense_width", "at least 1 where there are dense layers")
    if values["parameters_active"] > values["parameters_total"]:
        raise BadDataFile(file, "parameters_active", "at most parameters_total")


def catalogue(folder: Path | None = None) -> dict[str, ServedModel]:
    """Every model by its name: those that are carried along, and those of a folder of one's own, whose names go before.

    Raises BadDataFile for a file in the folder that cannot be used, naming the field.
    """
    found = {name: load_model(name) for name in names("models")}
    for file in sorted(folder.glob("*.yaml")) if folder is not None else ():
        model = read_model(str(file))
        found[model.name] = model
    return found


MODEL = "deepseek-r1"


@cache
def load_model(name: str = MODEL) -> ServedModel:
    """As `read_model`, read once."""
    return read_model(name)
