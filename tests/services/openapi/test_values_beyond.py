"""Every field of every request with a body, with values at and beyond what it takes: no answer is a failure.

Each field of a schema is set in an example of the request, one at a time, and the request is carried out, not only
validated: what no check at the door bounds reaches the database, which takes in tests no more than PostgreSQL does.
Whatever was taken, every service can then be read, before it is started again and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.services.every_route import NODE, RULES, Request, every_request
from tests.services.furnished import MARK, furnished_stack
from tests.services.openapi.test_openapi_examples import DOCUMENTS, NOT_HERE, as_there, bodies
from tests.small_stack import SmallStack

Place = tuple[str | int, ...]

LONG = "x" * 300
TINY = 5e-324
"""The smallest number over 0: what is divided by it is infinite."""
DEPTH = 7
NAMES = ("nul%00", LONG, "A%20b", "%ED%A0%80")
TEXTS = ("nul\0", "a=b,c!=d", "-x,y")
"""For parameters of a query, which may be filters and orders."""
SAME_BODY = {"/v1/scenario-runs", "/v1/scenario-runs/{name}"}
"""Their definitions are those of `/v1/scenarios`."""


def values_for(schema: dict[str, Any]) -> Iterator[Any]:
    """At the bounds that the schema has; where it has none, beyond those of every column and of 64 bits."""
    kind = schema.get("type")
    if kind == "string":
        yield "x" * schema.get("maxLength", len(LONG))
    elif kind in ("integer", "number"):
        yield from (schema[bound] for bound in ("minimum", "maximum") if bound in schema)
        whole = kind == "integer"
        if not schema.keys() & {"maximum", "exclusiveMaximum"}:
            yield from (1 << 31, 1 << 63, 1 << 64) if whole else (1e308,)
        if not schema.keys() & {"minimum", "exclusiveMinimum"}:
            yield -(1 << 63) - 1 if whole else -1e308
        if not whole:
            yield TINY
    elif kind == "object":
        yield {LONG: LONG}
        yield {LONG: 1 << 64}
    elif kind == "array":
        yield []


def places(document: dict[str, Any], schema: dict[str, Any], at: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Each place in a body of this schema, with what may be there."""
    if reference := schema.get("$ref"):
        schema = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    if len(at) > DEPTH:
        return
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from places(document, each, at)
    if at:
        yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from places(document, inner, (*at, name))
    for inner, step in ((schema.get("additionalProperties"), "added"), (schema.get("items"), 0)):
        if isinstance(inner, dict):
            yield from places(document, inner, (*at, step))


def with_value(example: Any, at: Place, value: Any) -> Any:
    """An example with something else there; what is missing on the way is added."""
    if not at:
        return value
    step, rest = at[0], at[1:]
    if isinstance(step, int):
        first, *others = example if isinstance(example, list) and example else [None]
        return [with_value(first, rest, value), *others]
    inner = example if isinstance(example, dict) else {}
    return {**inner, step: with_value(inner.get(step), rest, value)}


def bodies_beyond(document: dict[str, Any], schema: dict[str, Any], example: Any) -> Iterator[str]:
    """Each of them once, as JSON."""
    seen = set[str]()
    for at, wanted in places(document, schema):
        for value in values_for(wanted):
            content = json.dumps(with_value(example, at, value))
            if content not in seen:
                seen.add(content)
                yield content


def test_bodies_beyond_their_bounds_reach_into_what_is_nested() -> None:
    document = {"components": {"schemas": {"Inner": {"properties": {"n": {"type": "integer", "maximum": 9}}}}}}
    schema = {"properties": {"each": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}}}
    made = [json.loads(each) for each in bodies_beyond(document, schema, {"kept": True})]
    assert {"kept": True, "each": []} in made
    assert {"kept": True, "each": [{"n": 9}]} in made
    assert {"kept": True, "each": [{"n": -(1 << 63) - 1}]} in made


@pytest.mark.timeout(600)
@pytest.mark.looptime
async def test_no_value_of_any_field_is_a_failure(tmp_path: Path) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        requests = every_request(stack, names)
        paths = {(each.service, each.rule.method, each.rule.path): each for each in requests}
        failed = []

        async def ask(request: Request, path: str, content: str | None, **query: str) -> httpx.Response:
            agent = path.endswith("-reports") and content is not None
            token = stack.token("agent", MARK, NODE) if agent else stack.token("admin", MARK)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            about = request.query | query | request.of(MARK)
            answer = await stack.http[request.service].request(
                request.rule.method, path, content=content, headers=headers, params=about
            )
            if answer.status_code == 500:
                failed.append((request.service, request.rule.method, path, content, answer.text))
            return answer

        async def read_everything() -> None:
            for request in requests:
                if request.rule.method == "GET" and "{}" not in request.rule.path:
                    answer = await ask(request, request.path, None)
                    assert answer.is_success, (request.path, answer.text)

        for service in RULES:
            for method, path, schema, examples in bodies(service):
                if path in NOT_HERE or path in SAME_BODY:
                    continue
                request = paths[service, method.upper(), path.replace("{name}", "{}")]
                example = as_there(examples[0], {NODE: names["members"]})
                for content in bodies_beyond(DOCUMENTS[service], schema, example):
                    await ask(request, request.path, content)
                    if method == "put" and path.endswith("/{name}"):
                        await ask(request, path.replace("{name}", "brand-new"), content, validateOnly="true")
        assert not failed, "\n".join(str(each)[:600] for each in failed)
        await read_everything()
        for service in RULES:
            if service != "agents":  # ended already, so that nothing happens by itself
                await stack.restart(service)
        await read_everything()


@pytest.mark.timeout(600)
@pytest.mark.looptime
async def test_no_name_parameter_or_key_is_a_failure(tmp_path: Path) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        headers = {"Authorization": f"Bearer {stack.token('admin', MARK)}", "Content-Type": "application/json"}
        failed, seen = [], set()

        async def ask(request: Request, path: str, key: str | None = None, **query: str) -> None:
            keys = {} if key is None else {"Idempotency-Key": key, "If-Match": key}
            tried = {"validateOnly": "true"} if request.rule.mutates else {}
            answer = await stack.http[request.service].request(
                request.rule.method,
                path,
                content=None if request.body is None else json.dumps(request.body),
                headers=headers | keys,
                params=request.query | request.of(MARK) | tried | query,
            )
            if answer.status_code == 500:
                failed.append((request.service, request.rule.method, path, keys, query, answer.text))

        for request in every_request(stack, names):
            path, method = request.rule.path, request.rule.method
            for name in NAMES if "{}" in path else ():
                await ask(request, path.replace("{}", name))
            if request.rule.mutates:
                await ask(request, request.path, LONG)
            declared = DOCUMENTS[request.service]["paths"].get(path.replace("{}", "{name}"), {})
            for parameter in declared.get(method.lower(), {}).get("parameters", ()):
                read_by_one = (request.service, method == "GET", json.dumps(parameter))
                if parameter["in"] == "query" and parameter["name"] != "watch" and read_by_one not in seen:
                    seen.add(read_by_one)
                    schemas = [parameter["schema"], *parameter["schema"].get("anyOf", ())]
                    values = [*(str(value) for schema in schemas for value in values_for(schema)), *TEXTS]
                    for value in dict.fromkeys(values):
                        await ask(request, request.path, **{parameter["name"]: value})
        assert not failed, "\n".join(str(each)[:600] for each in failed)
