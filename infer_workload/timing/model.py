"""The served model: its shape, and what follows from it by counting.

A `ServedModel` says how large a layer's weights are, how many bytes a token leaves in the KV cache, and what the
weights of one die take for a given number of experts. Times are no business of this file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class ServedModel:
    """Counts of one model; all widths in elements, all sizes in bytes."""

    name: str
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

    @property
    def attention_parameters(self) -> int:
        """Parameters of one multi-head latent attention block: down and up projections and the output."""
        query = self.hidden * self.query_rank + self.query_rank * self.heads * (self.nope_width + self.rope_width)
        latent = self.hidden * (self.kv_rank + self.rope_width)
        up = self.kv_rank * self.heads * (self.nope_width + self.value_width)
        return query + latent + up + self.heads * self.value_width * self.hidden

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
        """Elements a token keeps in the KV cache of one layer: the latent and its rotary part."""
        return self.kv_rank + self.rope_width

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
        dense = 3 * self.hidden * self.dense_width * self.weight_bytes * self.dense_layers
        return attention + dense + 2 * self.head_parameters * self.head_bytes + experts * self.expert_bytes


def _values(document: dict[str, Any]) -> dict[str, Any]:
    return {key: entry["value"] if isinstance(entry, dict) else entry for key, entry in document.items()}


@lru_cache
def load_model(name: str = "deepseek-r1") -> ServedModel:
    """The model of that name. Raises KeyError where it is not one we carry."""
    values = _values(yaml.safe_load(files("infer_workload.timing").joinpath("model.yaml").read_text()))
    if values["name"] != name:
        raise KeyError(name)
    return ServedModel(**{field.name: values[field.name] for field in fields(ServedModel)})
