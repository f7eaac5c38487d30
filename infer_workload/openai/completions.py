"""The OpenAI-shaped endpoint over the engines: chat and text completions, whole or streamed, and the list of models.

Unknown fields are ignored, as other servers do; what is out of OpenAI's bounds (`parameters`), or changes the meaning
and is not emulated (several choices, tools that must be called), is refused in its error form. Words are emulated,
timing is the engine's: a token is sent when the engine has it, at the pace of the scaled clock. With MTP a step yields
one or two tokens; each has its own chunk. `stop`, `temperature` and their kin change nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from infer_workload.engine.engine import ContextTooLong
from infer_workload.engine.request import InferenceRequest
from infer_workload.openai.parameters import Parameters, StreamOptions
from infer_workload.openai.prompts import Chat, Shape, Text
from infer_workload.openai.synthetic_tokens import Answer, prefix_blocks
from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.service import Serving
from matrixcommon.api.authorization import GUARDED, Caller, CallerOf
from matrixcommon.model.errors import InvalidField, Malformed, MatrixError, Unavailable
from matrixcommon.model.resource_key import name_of, project_of, reference

RETRY_AFTER_S = 2
TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 422: "invalid_request_error",
         503: "service_unavailable_error"}  # fmt: skip
REFUSED: dict[int | str, dict[str, Any]] = {
    "default": {"description": "it is refused", "content": {"application/json": {"schema": {"type": "object"}}}}
}
"""How this endpoint refuses; who may not ask it at all is told so in a problem document."""
STREAMED = {**REFUSED, 200: {"content": {"text/event-stream": {}}}}


def _described(asked: str) -> dict[str, Any]:
    """What is read of a body, for the OpenAPI document; `asked` is the field that holds the prompt."""
    fields: dict[str, Any] = {"model": {"type": "string"}, asked: {}, "stream": {"type": "boolean"}}
    fields |= {"max_tokens": {"type": "integer", "minimum": 1}, "n": {"const": 1}}
    schema = {"type": "object", "properties": fields, "required": ["model", asked]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def routes(serving: Serving) -> APIRouter:
    """The routes over one `Serving`."""
    api = APIRouter(dependencies=GUARDED)

    @api.get("/v1/models")
    async def models(caller: CallerOf) -> dict[str, Any]:
        shown = [live for key, live in sorted(serving.live.items()) if caller.sees(project_of(key))]
        return {"object": "list", "data": [_model(live, caller.project) for live in shown]}

    @api.get("/v1/models/{name}", responses=REFUSED)
    async def model(name: str, caller: CallerOf) -> Response:
        try:
            return JSONResponse(_model(serving.serving_model(name, caller.project, caller.sees), caller.project))
        except MatrixError as refused:
            return refusal(refused)

    @api.get("/health", include_in_schema=False)
    async def health() -> Response:
        return Response(status_code=200)

    @api.post("/v1/chat/completions", responses=STREAMED, openapi_extra=_described("messages"))
    async def chat(request: Request, caller: CallerOf) -> Response:
        return await _complete(serving, request, Chat, caller)

    @api.post("/v1/completions", responses=STREAMED, openapi_extra=_described("prompt"))
    async def text(request: Request, caller: CallerOf) -> Response:
        return await _complete(serving, request, Text, caller)

    return api


@dataclass(frozen=True)
class Completion:
    """One accepted request and what its answer will be made of."""

    serving: Serving
    live: LiveDeployment
    request: InferenceRequest
    shape: Shape
    answer: Answer
    model: str
    finish: str
    created: int
    usage_at_end: bool = False
    usage_always: bool = False

    def document(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{self.shape.prefix}-{name_of(self.live.name)}-{self.request.number}",
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

    async def tokens(self) -> AsyncIterator[int]:
        """The number of tokens there are, each time there are more. Raises Unavailable when they will not come.

        Whoever stops listening has the request cancelled; what it got is charged either way.
        """
        reported = 0
        self.live.stream_count += 1
        self.serving.nudge()
        try:
            while True:
                if self.live.lost(self.request):
                    raise Unavailable(f"{self.live.name} lost its pools: {self.live.why}", retry_after_s=RETRY_AFTER_S)
                there = self.live.tokens_of(self.request)
                if there > reported:
                    reported = there
                    yield reported
                if self.request.done:
                    return
                await self.live.news()
        finally:
            self.live.stream_count -= 1
            self.live.cancel(self.request)
            charge = self.serving.metering
            current = self.request
            charge.add(self.live.name, current.tenant, current.input_tokens, current.cached_first, reported)
            self.serving.charge_now()


async def _complete(serving: Serving, request: Request, shape: Shape, caller: Caller) -> Response:
    try:
        body = await _body(request)
        parameters = shape.parameters.read(body)
        completion = await _accepted(serving, caller, body, parameters, shape)
        if parameters.stream:
            return StreamingResponse(
                _stream(completion),
                media_type="text/event-stream",
                headers={"Cache-Control": "no-cache", "X-Time-Scale": f"{serving.clock.scale:g}"},
            )
        return await _whole(completion)
    except MatrixError as refused:
        return refusal(refused)


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError as wrong:
        raise Malformed(f"the body is no JSON: {wrong}", field="body") from wrong
    if not isinstance(body, dict):
        raise Malformed("the body must be a JSON object", field="body")
    return body


async def _accepted(
    serving: Serving, caller: Caller, body: dict[str, Any], parameters: Parameters, shape: Shape
) -> Completion:
    """Hand what was asked to the engine; of a deployment that is scaled to zero, once it serves again."""
    model = parameters.model
    live = serving.serving_model(model, caller.project, caller.sees)
    prompt = shape.prompt(body) or [""]
    answer = Answer(" ".join(prompt))
    wanted, finish = _length(parameters, answer, shape)
    came = serving.clock.now()
    if not live.serves and live.activation.holds(live):
        serving.nudge()
        await live.activation.wait(live, serving.clock)
    if not live.serves:
        raise Unavailable(f"{live.name} is {live.state}: {live.why}", retry_after_s=RETRY_AFTER_S)
    tenant = f"{caller.principal.own_project}/{caller.principal.name}"
    blocks = prefix_blocks(prompt, live.spec.block_tokens)
    most = max(wanted, parameters.token_limit or 0)
    try:
        if len(prompt) + most > live.pools_view().context_length:
            raise ContextTooLong(len(prompt) + most, live.pools_view().context_length)
        now = serving.clock.now()
        accepted = live.submit(now, len(prompt), wanted, blocks, tenant, now - came)
    except ContextTooLong as wrong:
        too_long = InvalidField(
            f"This model's maximum context length is {wrong.limit} tokens, you asked for {wrong.tokens} "
            f"({len(prompt)} in the prompt, {most} for the answer)",
            field="messages" if shape is Chat else "prompt",
        )
        raise too_long from wrong
    options = parameters.stream_options or StreamOptions()
    return Completion(
        serving,
        live,
        accepted,
        shape,
        answer,
        model,
        finish,
        int(serving.clock.now()),
        usage_at_end=bool(options.include_usage),
        usage_always=bool(options.continuous_usage_stats),
    )


def _length(parameters: Parameters, answer: Answer, shape: Shape) -> tuple[int, str]:
    """How many tokens the answer has and why it ends there."""
    limit = parameters.token_limit
    if limit is None and shape is Text:
        limit = 16
    if limit is None:
        return answer.natural_tokens, "stop"
    if parameters.ignore_eos or answer.natural_tokens >= limit:
        return limit, "length"
    return answer.natural_tokens, "stop"


async def _whole(completion: Completion) -> Response:
    words: list[str] = []
    async for there in completion.tokens():
        words += [completion.answer.word() for _ in range(there - len(words))]
    shape = completion.shape
    document = completion.document(shape.whole, [shape.choice("".join(words), completion.finish, chunk=False)])
    return JSONResponse(document | {"usage": completion.usage(len(words))})


async def _stream(completion: Completion) -> AsyncIterator[bytes]:
    shape, reported = completion.shape, 0
    if shape is Chat:
        yield _event(_chunk(completion, shape.choice("", None, chunk=True, first=True), 0))
    try:
        async for there in completion.tokens():
            events = []
            while reported < there:
                reported += 1
                finish = completion.finish if reported == completion.request.output_tokens else None
                events.append(
                    _event(_chunk(completion, shape.choice(completion.answer.word(), finish, chunk=True), reported))
                )
            yield b"".join(events)
    except MatrixError as refused:
        yield _event({"error": _error(refused)})
        return
    if completion.usage_at_end:
        yield _event(completion.document(shape.piece, []) | {"usage": completion.usage(reported)})
    yield b"data: [DONE]\n\n"


def _chunk(completion: Completion, choice: dict[str, Any], reported: int) -> dict[str, Any]:
    document = completion.document(completion.shape.piece, [choice])
    if completion.usage_always:
        document["usage"] = completion.usage(reported)
    return document


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _model(live: LiveDeployment, project: str) -> dict[str, Any]:
    return {
        "id": reference(live.name, project),
        "object": "model",
        "created": 0,
        "owned_by": "cloudmatrix-infer",
        "root": live.spec.model,
        "max_model_len": live.pools_view().context_length,
    }


def _error(refused: MatrixError) -> dict[str, Any]:
    code = "context_length_exceeded" if "maximum context length" in refused.message else refused.reason
    if refused.status == 404:
        code = "model_not_found"
    kind = TYPES.get(refused.status, "server_error")
    return {"message": refused.message, "type": kind, "param": refused.field, "code": code}


def refusal(refused: MatrixError) -> Response:
    """A refusal in OpenAI's error form; 422 becomes its 400."""
    headers = {}
    if refused.retryable:
        headers["Retry-After"] = str(max(1, round(refused.retry_after_s or 1)))
    status = 400 if refused.status == 422 else refused.status
    return JSONResponse({"error": _error(refused)}, status, headers)
