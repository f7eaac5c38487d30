"""Built-in load: what is played, and what became of it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel


class LoadRequest(ApiModel):
    """Seeded conversation traffic played through the live engine, in emulated time."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"requestsPerSecond": 2, "seed": 7},)

    requests_per_second: float = Field(gt=0, le=100_000, description="in emulated time")
    seed: int = Field(0, ge=0, le=2**31, description="for everything that is left to chance")
    input_tokens_max: int | None = Field(None, ge=1, le=1_000_000, description="longer prompts are cut to this")


class LoadView(LoadRequest):
    """The load, and what became of it since it began or the process started."""

    submitted: int = 0
    refused: int = 0
    skipped: int = Field(0, description="not played because this machine could not keep up")
