"""Usage and usage limits, as documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_model import ApiModel, ResourceView

BUCKETS_S = {"1m": 60, "1h": 3600, "1d": 86_400}
"""Widths of time buckets in seconds, by name (as in OpenAI's usage API)."""
Bucket = Literal["all", "1m", "1h", "1d"]

LIMITED = ("requests_per_minute", "tokens_per_minute", "requests_per_day", "tokens_per_day", "requests_in_flight")
"""The fields of a `UsageLimitRequest` that are limits."""
Amount = Annotated[int, Field(ge=1, le=10**15)]


class UsageView(ApiModel):
    """Tokens used by one project's key on one model, in total or in one bucket of emulated time.

    Fields that are not grouped by are left out. `requests` counts requests that got at least one token.
    """

    name: str = Field("", description="the values that it is grouped by and the start of the bucket, joined by dots")
    project: str = Field(description="the project whose keys were used")
    key: str | None = Field(None, description="name of the token; `built-in` for built-in load")
    deployment: str | None = Field(None, description="deployment that answered; absent: not grouped by deployment")
    model: str | None = Field(None, description="model that answered; absent: not grouped by model")
    bucket_start: str | None = Field(None, description="emulated time, if buckets were requested")
    bucket_end: str | None = Field(None, description="end of the bucket, in emulated time, if buckets were requested")
    requests: int = Field(description="requests that got at least one token")
    prompt_tokens: int = Field(description="tokens of their prompts, cached ones included")
    cached_tokens: int = Field(description="prompt tokens that were found in the context cache")
    completion_tokens: int = Field(description="tokens generated for them")


class UsageLimitSpec(ApiModel):
    """How much a project's keys may use. Fields left out are unlimited; if several limits apply, all must hold.

    Minutes and days are in emulated time, UTC. Until a request ends, it counts with its prompt and the longest answer
    it may have, then with what it used.
    """

    token_name: str = Field(
        "", alias="key", max_length=63, description="name of the limited token; empty: all of the project's together"
    )
    model: str = Field(
        "", max_length=127, description="limited model, or deployment of the project; empty: all of them together"
    )
    requests_per_minute: Amount | None = Field(None, description="requests per emulated minute")
    tokens_per_minute: Amount | None = Field(None, description="prompt and answer tokens per emulated minute")
    requests_per_day: Amount | None = Field(None, description="requests per emulated day")
    tokens_per_day: Amount | None = Field(None, description="prompt and answer tokens per emulated day")
    requests_in_flight: Amount | None = Field(None, description="requests at the same time")


class UsageLimitRequest(UsageLimitSpec):
    """A limit as requested."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"requestsPerMinute": 600, "tokensPerMinute": 200_000},)

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not any(getattr(self, name) for name in LIMITED):
            raise ValueError(f"give at least one of {', '.join(to_camel(name) for name in LIMITED)}")
        return self


class UsedView(ApiModel):
    """One limited quantity, and how much of it is used and reserved in the present window."""

    limit: int = Field(description="most that may be used in the window")
    used: int = Field(
        description="how much is used or reserved; a running request counts with the most that it may use"
    )
    resets_at: str | None = Field(None, description="end of the window; null for requestsInFlight, which has none")


class UsageLimitView(UsageLimitSpec, ResourceView):
    """A limit, and its present usage."""

    used: dict[str, UsedView] = Field(default_factory=empty_dict, description="usage by field, such as tokensPerDay")
