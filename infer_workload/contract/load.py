"""Built-in load: the traffic to generate, and its results."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel


class LoadRequest(ApiModel):
    """Seeded conversation traffic sent through the live engine, in emulated time."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"requestsPerSecond": 2, "seed": 7},)

    requests_per_second: float = Field(gt=0, le=100_000, description="mean rate, per emulated second")
    seed: int = Field(0, ge=0, le=2**31, description="random seed of arrivals, lengths and prompts")
    input_tokens_max: int | None = Field(
        None, ge=1, le=1_000_000, description="longer prompts are cut to so many tokens"
    )


class LoadView(LoadRequest):
    """The load, and its counts since it began or the process started."""

    submitted: int = Field(0, description="requests that were accepted")
    refused: int = Field(0, description="requests that were not accepted: too long, or too late for the objective")
    skipped: int = Field(0, description="requests not generated because this host could not keep up")
