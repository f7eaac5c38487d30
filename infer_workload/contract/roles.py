"""Which nodes serve, and as what: those that are to leave, and how many each pool is to have."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import ApiModel


class DrainRequest(ApiModel):
    """Nodes that are to leave: nothing new begins there, what runs there finishes, the rest is handed over in time."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0"]},)

    nodes: list[NodeName] = Field(min_length=1, max_length=4096)
    deadline_s: float = Field(600.0, gt=0, le=86_400, description="emulated seconds that what runs there may take")
    by: str = Field(
        "",
        max_length=253,
        description="who asks, an operation or a scaling policy of MatrixCompute, or a CloudMatrixInstance that is to "
        "be smaller: only it may drain others; withdrawn when it has ended",
    )
    keep_serving: bool = Field(False, description="refuse where what stays cannot serve alone")


class DrainView(ApiModel):
    """A drain and how far it is. Once Drained, the nodes may be released."""

    nodes: list[str]
    absent: list[str] = Field(default_factory=empty_list, description="of these, those that it did not have when asked")
    deadline_at: str
    state: Literal["Draining", "Drained"]
    by: str = Field("", description="who asked for it")
    requests: int = Field(0, description="requests that still run there")
    requests_at_start: int = Field(0, description="requests that ran there when it began")


class ScaleRequest(ApiModel):
    """How many nodes each pool is to have, in place of the sizes of the spec. Both zero: nothing is served, and
    requests wait until somebody asks for more."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"prefillNodes": 2, "decodeNodes": 2},)

    prefill_nodes: int = Field(ge=0, le=4096, description="nodes that read prompts")
    decode_nodes: int = Field(ge=0, le=4096, description="nodes that generate answers")
    caching_nodes: int | None = Field(
        None, ge=1, le=8192, description="of these, how many lend their memory to the context cache; by default all"
    )
    deadline_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that requests may take to leave a role that changes"
    )
    by: str = Field("", max_length=253, description="who asks, such as a scaling policy")

    @field_validator("decode_nodes")
    @classmethod
    def _both_or_none(cls, decode: int, given: ValidationInfo) -> int:
        prefill = given.data.get("prefill_nodes")
        if prefill is not None and bool(decode) != bool(prefill):
            raise ValueError("prefillNodes and decodeNodes are both at least one, or both zero")
        return decode

    @field_validator("caching_nodes")
    @classmethod
    def _within(cls, caching: int | None, given: ValidationInfo) -> int | None:
        most = given.data.get("prefill_nodes", 8192) + given.data.get("decode_nodes", 8192)
        if caching is not None and caching > most:
            raise ValueError(f"it is to be at most prefillNodes and decodeNodes together, {most}")
        return caching


class ScaleView(ScaleRequest):
    """What was asked for, and whether it is so."""

    state: Literal["Changing", "LacksNodes", "Settled"] = "Settled"
    requests: int = Field(0, description="requests that still run in roles that change")
