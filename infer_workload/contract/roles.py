"""Changes of the nodes that serve and of their roles: drains, and the requested size of each pool."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import ApiModel


class DrainRequest(ApiModel):
    """Nodes to drain: no request begins there any more, running ones finish, the rest are handed over by the
    deadline."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0"]},)

    nodes: list[NodeName] = Field(
        min_length=1, max_length=4096, description="nodes to drain; others of the deployment take over"
    )
    deadline_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that running requests have to finish"
    )
    by: str = Field(
        "",
        max_length=253,
        description="requester: an operation or a scaling policy of MatrixCompute, or a CloudMatrixInstance that "
        "shrinks. Only it may change the nodes of the drain; when it has ended, the drain is withdrawn",
    )
    keep_serving: bool = Field(False, description="refuse the drain if the remaining nodes cannot serve by themselves")


class DrainView(ApiModel):
    """A drain and its progress. Once Drained, the nodes may be released."""

    nodes: list[str] = Field(description="nodes of the drain")
    absent: list[str] = Field(
        default_factory=empty_list, description="those of the nodes that the deployment did not have when it began"
    )
    deadline_at: str = Field(description="when requests that still run are handed over, in emulated time")
    state: Literal["Draining", "Drained"] = Field(description="Draining while requests run on the nodes, then Drained")
    by: str = Field("", description="requester")
    requests: int = Field(0, description="requests still running on the nodes")
    requests_at_start: int = Field(0, description="requests that ran on the nodes when the drain began")


class ScaleRequest(ApiModel):
    """The number of nodes of each pool, overriding the sizes of the spec. With both zero nothing is served, and
    requests wait until the deployment is scaled up."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"prefillNodes": 2, "decodeNodes": 2},)

    prefill_nodes: int = Field(ge=0, le=4096, description="nodes that read prompts")
    decode_nodes: int = Field(ge=0, le=4096, description="nodes that generate answers")
    caching_nodes: int | None = Field(
        None, ge=1, le=8192, description="how many of them lend their memory to the context cache; by default all"
    )
    deadline_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that requests have to finish on nodes that change role"
    )
    by: str = Field("", max_length=253, description="requester, such as a scaling policy")

    @field_validator("decode_nodes")
    @classmethod
    def _both_or_none(cls, decode: int, given: ValidationInfo) -> int:
        prefill = given.data.get("prefill_nodes")
        if prefill is not None and bool(decode) != bool(prefill):
            raise ValueError("prefillNodes and decodeNodes must both be at least 1, or both 0")
        return decode

    @field_validator("caching_nodes")
    @classmethod
    def _within(cls, caching: int | None, given: ValidationInfo) -> int | None:
        most = given.data.get("prefill_nodes", 8192) + given.data.get("decode_nodes", 8192)
        if caching is not None and caching > most:
            raise ValueError(f"must be at most prefillNodes plus decodeNodes, {most}")
        return caching


class ScaleView(ScaleRequest):
    """The requested sizes, and whether the deployment has them."""

    state: Literal["Changing", "LacksNodes", "Settled"] = Field(
        "Settled",
        description="Changing (requests still hold roles), LacksNodes (fewer serve than requested) or Settled",
    )
    requests: int = Field(0, description="requests still running on nodes that change role")
