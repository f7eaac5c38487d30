"""The OpenAI-compatible endpoint over the engines: chat and text completions, whole or streamed, and the models.

Unknown fields are ignored, as other servers do. A value outside OpenAI's bounds (`parameters`) is refused in OpenAI's
error format, and so is a feature that changes the meaning and is not emulated: several choices, an echoed prompt,
forced tool calls, JSON. The text is synthetic, the timing is the engine's: a token is sent when the engine has
generated it, at the pace of the scaled clock. With MTP a step yields one or two tokens; each has its own chunk.
`temperature` and similar parameters have no effect.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from infer_workload.engine.request import ContextTooLong, InferenceRequest
from infer_workload.openai.answers import (
    RETRY_AFTER_S,
    Completion,
    StreamedResponse,
    complete_response,
    error_response,
    too_long,
)
from infer_workload.openai.ending import Ending, ending_of, pieces, stopped
from infer_workload.openai.parameters import Parameters, StreamOptions
from infer_workload.openai.prompts import Chat, Shape, Text
from infer_workload.openai.synthetic_tokens import Answer, prefix_blocks
from infer_workload.serving.live.admission import wall_s
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.routing import Offer, candidates, offers
from infer_workload.serving.service import Serving
from matrixcommon.api.authorization import GUARDED, Caller, RequestCaller
from matrixcommon.api.deferred_route import DeferredRoute
from matrixcommon.model.errors import Malformed, MatrixError, NotFound, Overloaded, Unavailable

CLIENT_GONE = 499
"""The status that nginx logs when the client disconnected; no client sees it."""
REFUSED: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "an error in OpenAI's format",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
"""Errors of this endpoint, those of authentication included."""
STREAMED = {**REFUSED, 200: {"content": {"text/event-stream": {}}}}

TEXT_TOKENS = 16
"""The limit of a text completion that names none, as in OpenAI's API."""
CHAT = [{"role": "user", "content": "Why?"}]


def _described(prompt_field: str, example: Any) -> dict[str, Any]:
    """The OpenAPI description of a body: the fields that are read, with an example of the prompt."""
    fields: dict[str, Any] = {"model": {"type": "string"}, prompt_field: {}, "stream": {"type": "boolean"}}
    fields |= {"max_tokens": {"type": "integer", "minimum": 1}, "n": {"const": 1}}
    fields["stop"] = {"description": "up to four strings; the answer ends before the first that it contains"}
    fields["priority"] = {"type": "integer", "default": 0, "description": "lower means earlier handling, as in vLLM"}
    schema: dict[str, Any] = {"type": "object", "properties": fields, "required": ["model", prompt_field]}
    schema["examples"] = [{"model": "deepseek-r1", prompt_field: example, "max_tokens": 16}]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def routes(serving: Serving) -> APIRouter:
    """The routes over one `Serving`."""
    api = APIRouter(dependencies=GUARDED, route_class=DeferredRoute)

    def offered(caller: Caller) -> list[Offer]:
        return offers(serving.live.values(), caller.project, caller.sees)

    @api.get("/v1/models", responses=REFUSED)
    async def models(caller: RequestCaller) -> dict[str, Any]:
        """The names that the caller may give as `model`: the deployments visible to it, and the models they serve."""
        return {"object": "list", "data": [_model(each) for each in offered(caller)]}

    @api.get("/v1/models/{name:path}", include_in_schema=False)  # names with slashes, common elsewhere, get this 404
    @api.get("/v1/models/{name}", responses=REFUSED)
    async def model(name: str, caller: RequestCaller) -> Response:
        for each in offered(caller):
            if each.id == name:
                return JSONResponse(_model(each))
        return error_response(NotFound(f"model {name[:80]!r} does not exist", field="model"))

    @api.post("/v1/chat/completions", responses=STREAMED, openapi_extra=_described("messages", CHAT))
    async def chat(request: Request, caller: RequestCaller) -> Response:
        return await _complete(serving, request, Chat, caller)

    @api.post("/v1/completions", responses=STREAMED, openapi_extra=_described("prompt", "Why?"))
    async def text(request: Request, caller: RequestCaller) -> Response:
        return await _complete(serving, request, Text, caller)

    return api


async def _complete(serving: Serving, request: Request, shape: Shape, caller: Caller) -> Response:
    try:
        completing = asyncio.ensure_future(
            _response(serving, caller, _ParsedRequest.parse(await _body(request), shape))
        )
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({completing, gone}, return_when=asyncio.FIRST_COMPLETED)
            return completing.result() if completing.done() else Response(status_code=CLIENT_GONE)
        finally:
            gone.cancel()
            completing.cancel()
            await asyncio.wait({completing})
    except MatrixError as refused:
        return error_response(refused)


async def _response(serving: Serving, caller: Caller, parsed: _ParsedRequest) -> Response:
    """The response: the whole answer, or its stream."""
    completion = await _submit_to_best(serving, caller, parsed)
    del parsed  # a long prompt takes megabytes, and its answer may take minutes
    if not completion.streamed:
        return await complete_response(completion)
    return StreamedResponse(completion)


async def _disconnected(request: Request) -> None:
    """Return when the client disconnects. Its body has been read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> dict[str, Any]:
    """The body as JSON, read from the stream: `Request.body` would keep it until the answer has been sent."""
    try:
        body = json.loads(b"".join([chunk async for chunk in request.stream()]))
    except (ValueError, RecursionError) as wrong:
        raise Malformed(f"the body is not JSON: {wrong}", field="body") from wrong
    if not isinstance(body, dict):
        raise Malformed("the body must be a JSON object", field="body")
    return body


@dataclass(frozen=True)
class _ParsedRequest:
    """A request as parsed: the tokens of its prompt, and the answer planned for it."""

    shape: Shape
    parameters: Parameters
    prompt: list[str]
    answer: Answer
    ending: Ending

    @classmethod
    def parse(cls, body: dict[str, Any], shape: Shape) -> _ParsedRequest:
        """Raises InvalidField for a wrong parameter or prompt."""
        parameters = shape.parameters.read(body)
        prompt = shape.prompt(body) or [""]
        answer = Answer(" ".join(prompt))
        limit = TEXT_TOKENS if parameters.token_limit is None and shape is Text else parameters.token_limit
        return cls(shape, parameters, prompt, answer, ending_of(answer, parameters, limit))

    @property
    def answer_room(self) -> int:
        """Tokens that must fit the context beside the prompt: the answer's limit, or one if no limit was given."""
        return 1 if self.open_ended else max(self.ending.tokens, self.parameters.token_limit or 0)

    @property
    def open_ended(self) -> bool:
        """Whether the answer may fill the rest of the context."""
        return self.parameters.token_limit is None and self.shape is Chat

    @property
    def tokens_max(self) -> int:
        """The most tokens of prompt and answer together."""
        return len(self.prompt) + max(self.ending.tokens, self.answer_room)

    def fit_to(self, limit: int) -> _ParsedRequest:
        """The same request on a deployment whose context length is `limit`: an open-ended answer is cut at the end of
        the context, and any at its stop string. Raises ContextTooLong."""
        if (least := len(self.prompt) + self.answer_room) > limit:
            raise ContextTooLong(least, limit)
        room = limit - len(self.prompt)
        last = self.ending if self.ending.tokens <= room else Ending(room, "length")
        return replace(self, ending=stopped(self.answer, self.parameters, last))


async def _submit_to_best(serving: Serving, caller: Caller, parsed: _ParsedRequest) -> Completion:
    """Submit the request to the best deployment that admits it and whose context it fits. If none serves but one is
    scaled to zero or starting from zero, wait for that one. Raises NotFound, TooManyRequests, Unavailable,
    InvalidField."""
    found = candidates(serving.live, parsed.parameters.model, caller.project, caller.sees)
    arrived_at = serving.clock.now()
    late: list[Overloaded] = []
    limits: list[int] = []
    for live in found:
        if live.serves or live is found[0]:
            try:
                return await _admit(serving, live, caller, parsed, arrived_at)
            except Overloaded as refused:
                late.append(refused)
            except ContextTooLong as refused:
                limits.append(refused.limit)
    if not late:
        raise too_long(parsed.shape, len(parsed.prompt), parsed.answer_room, max(limits))
    soonest = min(late, key=lambda each: each.retry_after_s or 0)
    soonest.retry_after_s = wall_s(soonest.retry_after_s or 0, serving.clock.scale)
    raise soonest


async def _admit(
    serving: Serving, live: LiveDeployment, caller: Caller, parsed: _ParsedRequest, arrived_at: float
) -> Completion:
    project, key = caller.principal.own_project, caller.principal.name
    lease, charge = serving.usage.admit((project, key, live.name, live.spec.model), parsed.tokens_max)
    try:
        if not live.serves and live.activation.holds_requests(live):
            serving.driver.wake()
            await live.activation.wait(live, serving.clock)
        if not live.serves:
            raise Unavailable(f"{live.name} is {live.state}: {live.why}", retry_after_s=RETRY_AFTER_S)
        parsed = parsed.fit_to(live.layout.pools_view().context_length)
        submitted = _submit(serving, live, f"{project}/{key}", parsed, arrived_at)
    except BaseException:
        lease.cancel(serving.clock.now())
        raise
    options = parsed.parameters.stream_options or StreamOptions()
    return Completion(
        serving,
        live,
        submitted,
        charge,
        parsed.shape,
        pieces(parsed.answer, parsed.parameters, parsed.ending),
        parsed.ending.stop_string,
        parsed.parameters.model,
        int(serving.clock.now()),
        {"X-Time-Scale": f"{serving.clock.scale:g}", **lease.headers},
        streamed=bool(parsed.parameters.stream),
        usage_at_end=bool(options.include_usage),
        usage_always=bool(options.continuous_usage_stats),
    )


def _submit(
    serving: Serving, live: LiveDeployment, tenant: str, parsed: _ParsedRequest, arrived_at: float
) -> InferenceRequest:
    prompt, ending = parsed.prompt, parsed.ending
    blocks = prefix_blocks(prompt, live.spec.block_tokens, tenant.partition("/")[0])
    now = serving.clock.now()
    request = InferenceRequest(
        0, now, len(prompt), ending.tokens, blocks, tenant, parsed.parameters.priority or 0, ending.finish
    )
    return live.submit(now, request, now - arrived_at)


def _model(offer: Offer) -> dict[str, Any]:
    return {
        "id": offer.id,
        "object": "model",
        "created": 0,
        "owned_by": "cloudmatrix-infer",
        "root": offer.root,
        "max_model_len": offer.context_length or None,
    }
