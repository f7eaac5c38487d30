"""The answer to one accepted request: whole or streamed, charged before it is sent.

A token is sent as soon as the engine has generated it. Each token has its own chunk; the last chunk carries the finish
reason. A usage chunk follows if the client asked for one, then `[DONE]`. The chunk with a chat answer's role comes with
the first token, as in vLLM, because load generators take the time of the first chunk as the time to first token. When a
client disconnects, its request is cancelled and the tokens generated so far are charged. A client that gets an error
instead of a whole answer is charged nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from infer_workload.engine.request import InferenceRequest
from infer_workload.metering.accounts import Charge
from infer_workload.openai.prompts import Chat, Shape
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.service import Serving
from matrixcommon.model.errors import (
    InvalidField,
    MatrixError,
    RateLimitExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UsageQuotaExceeded,
)
from matrixcommon.model.resource_key import name_of

OPENAI = frozenset(
    {
        "assistants", "audio", "batches", "chat", "completions", "containers", "conversations", "edits", "embeddings",
        "engines", "evals", "files", "fine-tunes", "fine_tuning", "images", "models", "moderations", "organization",
        "realtime", "rerank", "responses", "score", "threads", "uploads", "vector_stores", "videos",
    }
)  # fmt: skip
"""The first path segment below /v1 of every OpenAI API, and of the APIs that vLLM adds. A request for one of them comes
from an OpenAI client, whether the path is served here or not; no path of CloudMatrix-Infer's own begins with one."""
RETRY_AFTER_S = 2


@dataclass(frozen=True)
class Completion:
    """One accepted request and everything needed to answer it."""

    serving: Serving
    live: LiveDeployment
    request: InferenceRequest
    charge: Charge
    shape: Shape
    pieces: Iterator[str]
    """What each token adds to the text."""
    stop_string: str | None
    """The stop string that the answer ends with."""
    model: str
    created: int
    headers: dict[str, str]
    streamed: bool = False
    usage_at_end: bool = False
    usage_always: bool = False

    def document(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{self.shape.id_prefix}-{name_of(self.live.name)}-{self.request.number}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def usage(self, completed: int) -> dict[str, Any]:
        prompt = self.request.input_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completed,
            "total_tokens": prompt + completed,
            "prompt_tokens_details": {"cached_tokens": min(self.request.cached_first, prompt)},
        }

    def cancel(self) -> None:
        """Cancel the request if it is unfinished, and release the tokens reserved for it: the client is gone. Does
        nothing once the answer has ended."""
        self.live.cancel(self.request)
        self.charge.close(0, self.request.input_tokens, self.request.cached_first)

    async def tokens(self) -> AsyncGenerator[int, None]:
        """Yield the number of tokens generated so far each time it grows. Tokens of a stream are charged before they
        are yielded. Raises Unavailable if the rest will not be generated, InvalidField if a retry would fail too."""
        reported, request = 0, self.request
        self.live.stream_count += 1
        self.serving.driver.wake()
        charged = self.streamed
        try:
            while True:
                if self.live.is_lost(request):
                    raise self._failure()
                there = self.live.tokens_of(request)
                if there > reported:
                    if self.streamed:
                        await self.charge.precharge(
                            there, request.output_tokens, request.input_tokens, request.cached_first
                        )
                    reported = there
                    yield reported
                # More tokens may have come, even the last, while these were charged and sent.
                if request.done and self.live.tokens_of(request) <= reported:
                    charged = True
                    await self.charge.charge_all(reported, request.input_tokens, request.cached_first)
                    return
                if not request.done and not self.live.is_lost(request):  # a removed deployment sends no more news
                    await self.live.wait_for_turn()
        except MatrixError:
            raise
        except BaseException:
            charged = True
            raise
        finally:
            self.live.stream_count -= 1
            self.live.cancel(request)
            self.charge.close(reported if charged else 0, request.input_tokens, request.cached_first)

    def _failure(self) -> MatrixError:
        """Why the request cannot finish: it does not fit the present layout, or there is none."""
        request, limit = self.request, self.live.layout.pools_view().context_length
        if self.live.engine is not None and request.input_tokens + request.output_tokens > limit:
            return too_long(self.shape, request.input_tokens, request.output_tokens, limit)
        return Unavailable(f"{self.live.name} lost its pools: {self.live.why}", retry_after_s=RETRY_AFTER_S)


def too_long(shape: Shape, prompt: int, answer: int, limit: int) -> InvalidField:
    """The error for a prompt and answer that exceed the context length."""
    return InvalidField(
        f"This model's maximum context length is {limit} tokens, you asked for {prompt + answer} "
        f"({prompt} in the prompt, {answer} for the answer)",
        field="messages" if shape is Chat else "prompt",
    )


async def complete_response(completion: Completion) -> Response:
    """The answer in one document."""
    pieces: list[str] = []
    async with aclosing(completion.tokens()) as tokens:
        async for there in tokens:
            pieces += islice(completion.pieces, there - len(pieces))
    shape = completion.shape
    choice = shape.choice("".join(pieces), completion.request.finish, chunk=False)
    document = completion.document(shape.object_type, [choice | {"stop_reason": completion.stop_string}])
    return JSONResponse(document | {"usage": completion.usage(len(pieces))}, headers=completion.headers)


class StreamedResponse(StreamingResponse):
    """A stream that always releases its request, even when the client disconnects before the first event."""

    def __init__(self, completion: Completion) -> None:
        headers = {"Cache-Control": "no-cache", **completion.headers}
        self._completion, self._events = completion, stream(completion)
        super().__init__(self._events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._events):  # so that a stream cut while sending is charged for its tokens
                await super().__call__(scope, receive, send)
        finally:
            self._completion.cancel()


async def stream(completion: Completion) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events."""
    shape, reported = completion.shape, 0
    try:
        async with aclosing(completion.tokens()) as tokens:
            async for there in tokens:
                events = []
                if shape is Chat and not reported:
                    events.append(_event(_chunk(completion, shape.choice("", None, chunk=True, first=True), 0)))
                while reported < there:
                    reported += 1
                    last = reported == completion.request.output_tokens
                    finish = completion.request.finish if last else None
                    choice = shape.choice(next(completion.pieces), finish, chunk=True)
                    if last:
                        choice["stop_reason"] = completion.stop_string
                    events.append(_event(_chunk(completion, choice, reported)))
                yield b"".join(events)
    except MatrixError as refused:
        yield stream_error(refused)
        return
    if completion.usage_at_end:
        yield _event(completion.document(shape.chunk_object_type, []) | {"usage": completion.usage(reported)})
    yield b"data: [DONE]\n\n"


def _chunk(completion: Completion, choice: dict[str, Any], reported: int) -> dict[str, Any]:
    document = completion.document(completion.shape.chunk_object_type, [choice])
    if completion.usage_always:
        document["usage"] = completion.usage(reported)
    return document


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _error(refused: MatrixError) -> dict[str, Any]:
    code = "context_length_exceeded" if "maximum context length" in refused.message else refused.reason
    kind, param = "invalid_request_error" if refused.status < 500 else "server_error", refused.field
    if refused.status == 503:
        kind = "service_unavailable_error"
    if refused.status == 404 and param == "model":
        code = "model_not_found"
    if isinstance(refused, Unauthorized):
        code = "invalid_api_key"
    if isinstance(refused, TooManyRequests):
        kind, param = "overloaded_error", None
        code = "overloaded"
    if isinstance(refused, RateLimitExceeded):
        kind, code = "tokens" if "okens" in (refused.field or "") else "requests", "rate_limit_exceeded"
    if isinstance(refused, UsageQuotaExceeded):
        kind = code = "insufficient_quota"
    return {"message": refused.message, "type": kind, "param": param, "code": code}


def stream_error(refused: MatrixError) -> bytes:
    """The last event of a stream that breaks off: the error."""
    return _event({"error": _error(refused)})


def is_asked_by_openai_clients(path: str) -> bool:
    """Whether answers and errors at this path have OpenAI's format."""
    _, version, kind, *_ = [*path.split("/"), "", ""]
    return version == "v1" and kind in OPENAI


def error_response(refused: MatrixError) -> Response:
    """The error in OpenAI's format; 422 becomes 400, which OpenAI uses instead."""
    status = 400 if refused.status == 422 else refused.status
    return JSONResponse({"error": _error(refused)}, status, refused.headers)
