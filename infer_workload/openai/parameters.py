"""The parameters of a completion: those of OpenAI's and vLLM's API that are checked, with their types and bounds there.

Most have no effect, as the text is synthetic. A value that OpenAI would refuse is refused here too, so that a client's
mistake shows before it meets a real endpoint; and so is a parameter that promises something of the text that synthetic
text does not keep, such as a format. Fields not listed here are ignored, as other servers do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import validation_message

Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1)]
STOPS_MAX = 4
NO_LOGPROBS = "logprobs are not emulated: token probabilities are not computed; leave it out"
ONE_CHOICE = "only one choice per request is emulated"
ROLES = ("developer", "system", "user", "assistant", "tool", "function")


_FORMAT = "the text is synthetic words and follows no format"
_TOKEN_IDS = "the text is synthetic and its tokens have no ids"
NOT_EMULATED = {
    "allowed_token_ids": _TOKEN_IDS,
    "audio": "answers are text only",
    "bad_words": "the text is synthetic and may contain any of them",
    "function_call": "functions are never called",
    "guided_choice": _FORMAT,
    "guided_grammar": _FORMAT,
    "guided_json": _FORMAT,
    "guided_regex": _FORMAT,
    "logits_processors": "logits are not computed",
    "prompt_logprobs": "token probabilities are not computed",
    "return_token_ids": _TOKEN_IDS,
    "stop_token_ids": f"{_TOKEN_IDS}; use stop",
    "structured_outputs": _FORMAT,
    "truncate_prompt_tokens": "prompts are not truncated",
    "use_beam_search": "tokens are not searched for",
}
"""Parameters of OpenAI's and vLLM's API that are refused, with the reason, unless they ask for nothing (`_NOTHING`)."""
_NOTHING: tuple[Any, ...] = (None, False, [], "none", "auto")


def _check_stops(given: Any) -> Any:
    """Check both types here, for one message: for a union, pydantic reports an error for each member."""
    stops = [given] if isinstance(given, str) else [] if given is None else given
    if isinstance(stops, list) and len(stops) <= STOPS_MAX and all(isinstance(each, str) for each in stops):
        if "" in stops:
            raise ValueError("must not contain an empty string")
        return given
    raise ValueError(f"must be a string or a list of at most {STOPS_MAX} strings")


def _check_format(given: Any) -> Any:
    kind = given.get("type") if isinstance(given, dict) else None
    if given is None or kind == "text":
        return given
    if isinstance(kind, str):
        raise ValueError(f"only the type text is emulated, not {kind[:40]!r}: {_FORMAT}")
    raise ValueError("must be an object with a type, such as {'type': 'text'}")


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
    include_stop_str_in_output: bool | None = None
    """vLLM's extension, as is `min_tokens`: neither a stop string nor the natural end ends the answer before it."""
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    response_format: Annotated[Any, BeforeValidator(_check_format)] = None
    user: str | None = None
    ignore_eos: bool | None = None
    priority: int | None = None
    """vLLM's extension: a lower value is handled earlier."""

    @property
    def token_limit(self) -> int | None:
        """The most tokens that the answer may have."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stop_strings(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """Parse the parameters of a request. Raises InvalidField for the first wrong one."""
        try:
            found = cls.model_validate(body)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            field = str(first["loc"][0])
            nested = ".".join([field, *(str(step) for step in first["loc"][1:] if step in StreamOptions.model_fields)])
            message = validation_message(first)
            raise InvalidField(f"{nested}: {message[:1].lower()}{message[1:]}", field=nested) from wrong
        for name, why in NOT_EMULATED.items():
            if body.get(name) not in _NOTHING:
                raise InvalidField(f"{name} is not emulated: {why}", field=name)
        if found.n not in (None, 1):
            raise InvalidField(ONE_CHOICE, field="n")
        if found.stream_options is not None and not found.stream:
            raise InvalidField("stream_options is allowed only when stream is true", field="stream_options")
        if (limit := found.token_limit) is not None and (found.min_tokens or 0) > limit:
            raise InvalidField(f"min_tokens must be at most the answer's limit of {limit}", field="min_tokens")
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
