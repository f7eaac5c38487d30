"""Examples of the OpenAPI documents: each is as its schema says, and a service takes one for every request with a body.

What is printed is what people copy. So the names in examples are made names of things that are there, and nothing else
of them is changed; `validateOnly` has everything run but the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.services.every_route import RULES, Request, every_request
from tests.services.furnished import MARK, furnished_stack
from tests.stack import Stack

DOCUMENTS = {
    service: json.loads((Path(__file__).parents[3] / "docs" / "reference" / "openapi" / f"{service}.json").read_text())
    for service in RULES
}
CHANGING = ("put", "post", "patch")
STANDS_FOR = {"deepseek-r1": "a", "qwen": "b", "research": MARK, "deepseek-r1-ub": "a-ub"}
STANDS_FOR |= {"deepseek-r1-vpc": "a-vpc", "qwen-vpc": "b-vpc"}
"""What is there under the names of the examples; a model's own name stays."""
STATES = ("clean", "enrol", "inspect", "recover", "update", "verify")
AS_NOW = {
    "/v1/allocations/{name}:changeOver": "it has to be the request of the move that is under way",
    "/v1/defragmentations": "there is room already",
    "/v1/defragmentations/{name}:refuse": "it has to name a move of a plan that is carried out",
    "/v1/maintenances/{name}": "another maintenance works on the same nodes already",
    "/v1/operations/{name}:abandon": "an operation has to be under way",
    **{f"/v1/nodes/{{name}}:{verb}": "the node has to be in another state" for verb in STATES},
}
"""Where more depends on what is under way than on what is sent: the answer may be a conflict, and no complaint of the
body."""
NOT_HERE = {"/v1/process-faults/{name}": "only what `matrixctl up` keeps can be struck"}
FREE_NODE, NEW = "sn0-c08-n0", "brand-new"


def bodies(service: str) -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    """Method, path, schema and examples of each request that has a body."""
    document = DOCUMENTS[service]
    for path, methods in document["paths"].items():
        for method in [each for each in CHANGING if each in methods]:
            if found := methods[method].get("requestBody"):
                schema = found["content"]["application/json"]["schema"]
                yield method, path, schema, list(examples_in(document, schema))


def examples_in(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """Of a schema, of what it refers to, and of what it may be one of."""
    yield from schema.get("examples", ())
    if reference := schema.get("$ref"):
        yield from examples_in(document, document["components"]["schemas"][reference.rsplit("/", 1)[-1]])
    for each in schema.get("anyOf", ()):
        yield from examples_in(document, each)


def examples_anywhere(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every example with the schema that it stands in, and where that is."""

    def walk(part: Any, at: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
        if isinstance(part, dict):
            single = [part["example"]] if "example" in part and ("type" in part or "$ref" in part) else []
            for example in [*(part.get("examples") or [] if isinstance(part.get("examples"), list) else []), *single]:
                yield at, part, example
            for name, inner in part.items():
                if name not in ("examples", "example"):
                    yield from walk(inner, f"{at}/{name}")
        elif isinstance(part, list):
            for index, inner in enumerate(part):
                yield from walk(inner, f"{at}/{index}")

    return walk(document, "")


def complaint(document: dict[str, Any], schema: dict[str, Any], example: Any) -> str | None:
    """What the schema has against an example, or None."""
    whole = {**schema, "components": document["components"]}
    try:
        jsonschema_rs.Draft202012Validator(whole).validate(example)
    except jsonschema_rs.ValidationError as wrong:
        return str(wrong)
    return None


@pytest.mark.parametrize("service", RULES)
def test_every_example_is_as_its_schema_says(service: str) -> None:
    found = list(examples_anywhere(DOCUMENTS[service]))
    assert found
    wrong = {
        at: complained
        for at, schema, example in found
        if (complained := complaint(DOCUMENTS[service], schema, example))
    }
    assert not wrong


@pytest.mark.parametrize("service", RULES)
def test_every_request_with_a_body_has_an_example(service: str) -> None:
    assert not [f"{method} {path}" for method, path, _, examples in bodies(service) if not examples]


def test_an_example_that_is_wrong_is_found() -> None:
    document = DOCUMENTS["resource"]
    schema = {"$ref": "#/components/schemas/AllocationRequest"}
    assert complaint(document, schema, {"nodes": 3}) is None
    assert complaint(document, schema, {"nodes": "three"})
    assert complaint(document, schema, {"nodes": 3, "noodles": 1})


def as_there(example: Any, members: dict[str, str], field: str = "") -> Any:
    if isinstance(example, dict):
        return {key: as_there(value, members, key) for key, value in example.items()}
    if isinstance(example, list):
        return [as_there(each, members, field) for each in example]
    if field == "model" or not isinstance(example, str):
        return example
    return {**STANDS_FOR, **members}.get(example, example)


@pytest.mark.timeout(300)
@pytest.mark.looptime
async def test_an_example_of_every_request_is_taken(tmp_path: Path) -> None:
    async with furnished_stack(tmp_path, Stack) as (stack, names):
        member = {"sn0-c00-n0": names["members"]}
        paths = {(each.service, each.rule.method, each.rule.path): each for each in every_request(stack, names)}
        refused = []
        for service in RULES:
            for method, path, _, examples in bodies(service):
                if path in NOT_HERE:
                    continue
                request = paths[service, method.upper(), path.replace("{name}", "{}")]
                at = _fresh(method, path, request.path)
                answers = [await _asked(stack, request, at, as_there(each, member)) for each in examples]
                taken = (404, 409) if path in AS_NOW else ()
                if not any(200 <= status < 300 or status in taken for status, _ in answers):
                    refused.append((service, method, path, answers))
        assert not refused, "\n".join(map(str, refused))


def _fresh(method: str, path: str, asked: str) -> str:
    """What is made by its example is of a new name; a node that something is done to is free."""
    if path.startswith("/v1/nodes/"):
        return path.replace("{name}", FREE_NODE)
    ensured = ("/v1/scaling-", "/v1/recovery-", "/v1/quotas", "/v1/supernodes")
    made = method == "put" and path.endswith("/{name}") and not path.startswith(ensured)
    return path.replace("{name}", NEW) if made else asked


async def _asked(stack: Stack, request: Request, path: str, body: Any) -> tuple[int, str]:
    role = "agent" if path.endswith("-reports") else "admin"
    node = body["reports"][0]["node"] if role == "agent" else ""
    token = stack.token(role, MARK, node)
    headers = {"Authorization": f"Bearer {token}"}
    about = request.query | request.of(MARK)
    if "validateOnly" in request.takes:
        about["validateOnly"] = "true"
    answer = await stack.http[request.service].request(
        request.rule.method, path, json=body, headers=headers, params=about
    )
    return answer.status_code, answer.text[:300]
