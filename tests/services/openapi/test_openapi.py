"""Every OpenAPI document, by schemathesis: whatever a role sends, no service fails, and each answers as it is described.

What is sent follows the document: names and fields at random, among them names of things that are there, and bodies
that are taken. Each request is sent under every role. Nothing may end in a failure of the service, in an answer that
the document does not describe, or in a refusal that does not name the field. In `make test` there are a few of them,
always the same, and of each operation the first few under the roles that it is not for too; `make soak` sends many,
others each time and all of them under every role: `OPENAPI_EXAMPLES` of each operation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response

from matrixcommon.api.authorization import ROLES
from tests.clocks import virtual_loop
from tests.services.every_route import BODIES, NAMES, NODE, RULES
from tests.services.furnished import MARK, continued, furnished_before

pytestmark = pytest.mark.timeout(600)

EXAMPLES, EXAMPLES_SOAK = 10, int(os.environ.get("OPENAPI_EXAMPLES", "2000"))
REFUSED = 3
"""How many of the examples are sent under roles that they are not for too."""
WRONG = (400, 422)
ORDER = ("get", "post", "put", "delete")
"""What is there is looked at and changed before it is deleted."""


class Walk:
    """A furnished stack in a loop of its own, so that hypothesis may ask it from outside of any loop."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner(loop_factory=virtual_loop)
        self.stack = furnished_before(folder)
        self.names = {**NAMES, **self.runner.run(self._begin())}
        self.tokens = {role: self.stack.token(role, MARK, NODE if role == "agent" else "") for role in ROLES}
        self.found: dict[str, str] = {}
        self.sent = 0

    async def _begin(self) -> dict[str, str]:
        await self.stack.__aenter__()
        return await continued(self.stack)

    def end(self) -> None:
        self.runner.run(self.stack.__aexit__())
        self.runner.close()

    def operations(self, service: str) -> list[Any]:
        schema = schemathesis.openapi.from_dict(self.stack.slots[service].transport.app.openapi())
        found = [each.ok() for each in schema.get_all_operations()]
        return sorted(found, key=lambda each: (ORDER.index(each.method), each.path))

    def roles(self, service: str, operation: Any) -> frozenset[str]:
        """For whom a request is."""
        rule = RULES[service].find(operation.method.upper(), operation.path)
        assert rule is not None
        return rule.roles

    def ask(self, service: str, operation: Any, case: Any, refused: bool) -> None:
        """One request under every role, or every one that it is for, each answer judged."""
        taken = self.roles(service, operation)
        asked = case.as_transport_kwargs(base_url="http://x")
        known = {
            key: value for key, value in asked.items() if key in ("method", "url", "headers", "params", "json", "data")
        }
        prepared = requests.Request(**known).prepare()
        for role in (None, *self.tokens) if refused else sorted(taken):
            headers = {key: value for key, value in prepared.headers.items() if key.lower() != "authorization"}
            headers["Authorization"] = f"Bearer {self.tokens[role]}" if role else "none"
            answer = self.runner.run(self._answer(service, prepared, headers))
            self.sent += 1
            for wrong in self.judge(service, operation, case, role, answer, prepared):
                what = f"{service} {operation.method.upper()} {operation.path} as {role}: {wrong.split(chr(10))[0]}"
                details = f"{prepared.method} {prepared.path_url[:300]} {str(prepared.body)[:300]}: {answer.text[:500]}"
                self.found.setdefault(what[:300], details)

    async def _answer(self, service: str, prepared: Any, headers: dict[str, str]) -> httpx.Response:
        client = self.stack.http[service]
        return await client.request(
            prepared.method, prepared.path_url, headers=headers, content=prepared.body, timeout=None
        )

    def judge(
        self,
        service: str,
        operation: Any,
        case: Any,
        role: str | None,
        answer: httpx.Response,
        sent: requests.PreparedRequest,
    ) -> Iterator[str]:
        if role is None or role not in self.roles(service, operation):
            if answer.status_code != (401 if role is None else 403):
                yield f"{answer.status_code} for whom it is not"
        elif answer.status_code >= 500 and not is_away(operation.path, answer):
            yield f"{answer.status_code}"
        if answer.status_code in WRONG and not refused_field(answer):
            yield f"{answer.status_code} without a field"
        answers = self.stack.slots[service].transport.app.openapi()["paths"][operation.path][operation.method][
            "responses"
        ]
        described = answers.get(str(answer.status_code), answers["default"]).get("content", {})
        if answer.content and answer.headers["content-type"].partition(";")[0] not in described:
            yield f"{answer.status_code} is {answer.headers['content-type']}"
        try:
            operation.validate_response(as_read_by_schemathesis(answer, sent), case=case)
        except (FailureGroup, AssertionError) as wrong:
            yield f"{answer.status_code} is not as described: {getattr(wrong, 'exceptions', [wrong])[0]}"


def as_read_by_schemathesis(answer: httpx.Response, sent: requests.PreparedRequest) -> Response:
    """With the request as it was sent: its own conversion prepares each anew, which takes longer than to judge it."""
    return Response(
        status_code=answer.status_code,
        headers={name: [value] for name, value in answer.headers.items()},
        content=answer.content,
        request=sent,
        elapsed=0.0,
        verify=False,
        message=answer.reason_phrase,
        encoding=answer.encoding,
    )


def is_away(path: str, answer: httpx.Response) -> bool:
    """A model whose instance has lost its nodes: it may be asked again later."""
    return answer.status_code == 503 and path.endswith("completions") and "retry-after" in answer.headers


def refused_field(answer: httpx.Response) -> str | None:
    """Of a problem document, or of OpenAI's."""
    problem = answer.json()
    found: str | None = problem["error"].get("param") if "error" in problem else problem.get("field")
    return found


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    walk = Walk(tmp_path_factory.mktemp("walk"))
    yield walk
    walk.end()


def walked(walk: Walk, service: str, examples: int, refused: int, derandomize: bool) -> None:
    walk.found.clear()
    chosen = settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    for operation in walk.operations(service):
        chosen(given(case=operation.as_strategy(), data=st.data())(sending(walk, service, operation, refused)))()
    listed = "\n".join(f"{what}\n    {details}" for what, details in sorted(walk.found.items()))
    assert not walk.found, f"{len(walk.found)} of {walk.sent}:\n{listed}"


def sending(walk: Walk, service: str, operation: Any, refused: int) -> Callable[..., None]:
    """Sends what was drawn: half of the time of a thing that is there, and half of the time a body that is taken with
    some fields of the drawn one."""
    name = walk.names.get(operation.path.split("/")[2], "none")
    begun = count()
    taken = BODIES.get((service, operation.method.upper(), operation.path.replace("{name}", "{}")))

    def send(case: Any, data: Any) -> None:
        if case.query.get("watch"):
            case.query["watch"] = False
        if case.path_parameters and data.draw(st.booleans()):
            case.path_parameters = dict.fromkeys(case.path_parameters, name)
        if isinstance(case.body, dict) and isinstance(taken, dict) and data.draw(st.booleans()):
            changed = data.draw(st.sets(st.sampled_from(sorted(case.body)), max_size=2)) if case.body else set()
            case.body = {**taken, **{field: case.body[field] for field in changed}}
        walk.ask(service, operation, case, refused=next(begun) < refused)

    return send


@pytest.mark.parametrize("service", RULES)
def test_every_service_answers_as_its_document_says(walk: Walk, service: str) -> None:
    walked(walk, service, EXAMPLES, REFUSED, derandomize=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("service", RULES)
def test_every_service_answers_as_its_document_says_for_long(walk: Walk, service: str) -> None:
    walked(walk, service, EXAMPLES_SOAK, EXAMPLES_SOAK, derandomize=False)
