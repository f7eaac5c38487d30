"""Prompt parsing and answer format of the two kinds of completion."""

from __future__ import annotations

from typing import Any

from infer_workload.openai.parameters import ROLES, ChatParameters, TextParameters
from infer_workload.openai.synthetic_tokens import tokens_of
from matrixcommon.api.storable_text import check_characters
from matrixcommon.model.errors import InvalidField

TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The types of content parts that are text, each with the field that holds the text."""


class Text:
    """Text completions (`/v1/completions`)."""

    object_type, chunk_object_type, id_prefix = "text_completion", "text_completion", "cmpl"
    parameters = TextParameters

    @staticmethod
    def prompt(body: dict[str, Any]) -> list[str]:
        """The prompt's tokens. A list of token ids is accepted; a list of several prompts is refused."""
        given = body.get("prompt")
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str | list):
            given = given[0]
        if isinstance(given, str):
            return _tokens(given, "prompt")
        if isinstance(given, list) and given and all(type(token) is int and token >= 0 for token in given):
            return [str(token) for token in given]
        raise InvalidField("prompt must be one prompt: a string or a list of token ids", field="prompt")

    @staticmethod
    def choice(text: str, finish: str | None, *, chunk: bool, first: bool = False) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


class Chat:
    """Chat completions (`/v1/chat/completions`)."""

    object_type, chunk_object_type, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"
    parameters = ChatParameters

    @staticmethod
    def prompt(body: dict[str, Any]) -> list[str]:
        """The tokens of all messages, each message preceded by a token for its role."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise InvalidField("messages must be a list with at least one message", field="messages")
        tokens: list[str] = []
        for at, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise InvalidField("a message must be an object with a role and content", field=f"messages[{at}]")
            if message["role"] not in ROLES:
                raise InvalidField(f"role must be one of {', '.join(ROLES)}", field=f"messages[{at}].role")
            content = _content(message.get("content"), at)
            tokens += [f"<{message['role']}>", *_tokens(content, f"messages[{at}].content")]
        return tokens

    @staticmethod
    def choice(text: str, finish: str | None, *, chunk: bool, first: bool = False) -> dict[str, Any]:
        reported = {"role": "assistant", "content": text} if first or not chunk else {"content": text} if text else {}
        return {"index": 0, "delta" if chunk else "message": reported, "logprobs": None, "finish_reason": finish}


Shape = type[Chat] | type[Text]


def _tokens(text: str, field: str) -> list[str]:
    check_characters(text, field)
    return tokens_of(text)


def _content(content: Any, at: int) -> str:
    """The text of a message. Raises InvalidField for content other than text: ignoring it would give a wrong answer."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    field = f"messages[{at}].content"
    if not isinstance(content, list):
        raise InvalidField("content must be a string or a list of parts", field=field)
    return " ".join(_part(part, f"{field}[{number}]") for number, part in enumerate(content))


def _part(part: Any, field: str) -> str:
    if isinstance(part, str):  # as vLLM accepts it
        return part
    kind = part.get("type", "text") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise InvalidField("a content part must be an object with a type", field=field)
    if kind not in TEXT_PARTS:
        raise InvalidField(f"only text is supported, not a part of type {kind[:40]!r}", field=f"{field}.type")
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise InvalidField(
            f"a part of type {kind} needs its {TEXT_PARTS[kind]} as a string", field=f"{field}.{TEXT_PARTS[kind]}"
        )
    return text
