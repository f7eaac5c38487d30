"""Usage and limits of it, as documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_model import ApiModel, ResourceView

BUCKETS_S = {"1m": 60, "1h": 3600, "1d": 86_400}
"""Widths of a bucket of time, by how they are called (OpenAI's usage API has the same)."""
Bucket = Literal["all", "1m", "1h", "1d"]

LIMITED = ("requests_per_minute", "tokens_per_minute", "requests_per_day", "tokens_per_day", "requests_in_flight")
"""What a `UsageLimitRequest` may limit."""
Amount = Annotated[int, Field(ge=1, le=10**15)]


class UsageView(ApiModel):
    """Tokens of one tenant's key on one model, ever since or in one bucket of emulated time.

    What is not grouped by is left out. `requests` counts those of which something was answered.
    """

    name: str = ""
    project: str
    key: str | None = Field(None, description="the name of the token; `built-in` for built-in load")
    deployment: str | None = None
    model: str | None = None
    bucket_start: str | None = Field(None, description="emulated time, where buckets were asked for")
    bucket_end: str | None = None
    requests: int
    prompt_tokens: int
    cached_tokens: int = Field(description="of the prompt's tokens, those found in the context cache")
    completion_tokens: int


class UsageLimitSpec(ApiModel):
    """How much a project's keys may use. What is not given is not limited; of several limits each holds.

    Minutes and days are those of emulated time, UTC. A request is charged with its prompt and the longest answer it may
    have until it ends, then with what it used.
    """

    token_name: str = Field(
        "", alias="key", max_length=63, description="the name of a token; empty: all of the project's together"
    )
    model: str = Field(
        "", max_length=127, description="a model, or a deployment of the project; empty: all of them together"
    )
    requests_per_minute: Amount | None = Field(None, description="requests in an emulated minute")
    tokens_per_minute: Amount | None = Field(None, description="tokens of prompts and answers in an emulated minute")
    requests_per_day: Amount | None = Field(None, description="requests in an emulated day")
    tokens_per_day: Amount | None = Field(None, description="tokens of prompts and answers in an emulated day")
    requests_in_flight: Amount | None = Field(None, description="at once")


class UsageLimitRequest(UsageLimitSpec):
    """A limit, as it is asked for."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"requestsPerMinute": 600, "tokensPerMinute": 200_000},)

    labels: dict[str, str] = Field(default_factory=empty_dict)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not any(getattr(self, name) for name in LIMITED):
            raise ValueError(f"give at least one of {', '.join(to_camel(name) for name in LIMITED)}")
        return self


class UsedView(ApiModel):
    """One thing that is limited: how much of it is used and set aside in the present window."""

    limit: int
    used: int
    resets_at: str | None = Field(None, description="when the window ends; none for what counts requests at once")


class UsageLimitView(UsageLimitSpec, ResourceView):
    """A limit, and what is used of it now."""

    used: dict[str, UsedView] = Field(default_factory=empty_dict, description="by the name of what is limited")
