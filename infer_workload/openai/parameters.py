"""The parameters of a completion: those of OpenAI's API that are checked, with their types and bounds there.

Most have no effect, as the text is synthetic. A value that OpenAI would refuse is refused here too, so that a client's
mistake shows before it meets a real endpoint. Fields not listed here are ignored, as other servers do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from matrixcommon.model.errors import InvalidField

Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1)]
STOPS_MAX = 4
NO_LOGPROBS = "logprobs are not emulated: token probabilities are not computed; leave it out"
ONE_CHOICE = "only one choice per request is emulated"
ROLES = ("developer", "system", "user", "assistant", "tool", "function")


def _check_stops(given: Any) -> Any:
    """Check both types here, for one message: for a union, pydantic reports an error for each member."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list) and len(given) <= STOPS_MAX and all(isinstance(each, str) for each in given):
        return given
    raise ValueError(f"must be a string or a list of at most {STOPS_MAX} strings")


class _KnownParameters(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class StreamOptions(_KnownParameters):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Parameters(_KnownParameters):
    """The parameters that both kinds of completion accept."""

    model: str = Field(min_length=1)
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: int | None = None
    stop: Annotated[str | list[str] | None, BeforeValidator(_check_stops)] = None
    user: str | None = None
    ignore_eos: bool | None = None
    priority: int | None = None
    """vLLM's extension: a lower value is handled earlier."""

    @property
    def token_limit(self) -> int | None:
        """The most tokens that the answer may have."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """Parse the parameters of a request. Raises InvalidField for the first wrong one."""
        try:
            found = cls.model_validate(body)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            field = str(first["loc"][0])
            nested = ".".join([field, *(str(step) for step in first["loc"][1:] if step in StreamOptions.model_fields)])
            raise InvalidField(
                f"{nested}: {first['msg'].removeprefix('Value error, ').lower()}", field=nested
            ) from wrong
        if found.n not in (None, 1):
            raise InvalidField(ONE_CHOICE, field="n")
        if found.stream_options is not None and not found.stream:
            raise InvalidField("stream_options is allowed only when stream is true", field="stream_options")
        return found


class TextParameters(Parameters):
    best_of: Annotated[int, Field(ge=1, le=20)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    suffix: str | None = None

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        found = super().parse(body)
        if found.best_of not in (None, 1):
            raise InvalidField(ONE_CHOICE, field="best_of")
        if found.echo:
            raise InvalidField("echo is not emulated: the prompt is not returned with the answer", field="echo")
        if found.logprobs is not None:
            raise InvalidField(NO_LOGPROBS, field="logprobs")
        if found.suffix:
            raise InvalidField("suffix is not emulated: text is not inserted before it", field="suffix")
        return found


class ChatParameters(Parameters):
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tool_choice: Literal["none", "auto"] | None = Field(None, description="accepted; tools are never called")

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        found = super().parse(body)
        if found.top_logprobs is not None and not found.logprobs:
            raise InvalidField("top_logprobs is allowed only when logprobs is true", field="top_logprobs")
        if found.logprobs:
            raise InvalidField(NO_LOGPROBS, field="logprobs")
        return found
