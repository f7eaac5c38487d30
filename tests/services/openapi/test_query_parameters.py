"""A parameter that a route does not declare is refused, of every route of every service, and nothing is changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from services.matrixctl.clients.api_client import PROJECT_COLLECTIONS
from tests.services.every_route import RULES, ask, differences, every_request, remembered
from tests.services.furnished import MARK, furnished_stack

DOCUMENTS = Path(__file__).parents[3] / "docs" / "reference" / "openapi"
OPENAI = {"completions", "models"}
"""Kinds of the OpenAI endpoint, whose clients add parameters of their own (Codex `client_version`, Azure's
`api-version`)."""


@pytest.mark.looptime
@pytest.mark.timeout(300)
async def test_an_unknown_parameter_is_refused_by_every_route_and_changes_nothing(tmp_path):
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", "default")
        before, meant = remembered(stack), set()
        for request in every_request(stack, names):
            if request.rule.kind in OPENAI:
                continue
            of = request.of(MARK)
            for unknown in ({"validateonly": "true"}, {"filtr": "state=Active"}, {"orderby": ""}, {"Project": MARK}):
                answer = await ask(stack, request, admin, **of, **unknown)
                problem, (name,) = answer.json(), unknown
                assert (answer.status_code, problem["reason"]) == (400, "Malformed"), f"{request}: {answer.text}"
                assert problem["field"] == problem["blocking"][0]["field"] == f"query.{name}", (
                    f"{request}: {answer.text}"
                )
                assert all(taken in problem["detail"] for taken in request.takes), f"{request}: {answer.text}"
                meant |= {(name, word) for word in request.takes if f"did you mean {word!r}?" in problem["detail"]}
            if not of:
                answer = await ask(stack, request, admin, project=MARK)
                assert (answer.status_code, answer.json()["field"]) == (400, "query.project"), str(request)
        assert not differences(before, remembered(stack))
        close = {("validateonly", "validateOnly"), ("filtr", "filter"), ("orderby", "orderBy"), ("Project", "project")}
        assert meant >= close


@pytest.mark.looptime
@pytest.mark.timeout(300)
async def test_a_parameter_given_twice_is_refused_unless_it_is_a_list(tmp_path):
    """Of two values one would be passed over."""
    twice = {"validateOnly": ["true", "false"], "filter": ["state=Active", "state=Lost"], "project": [MARK, MARK]}
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", "default")
        before, refused = remembered(stack), set()
        for request in every_request(stack, names):
            for name in request.takes & twice.keys() if request.rule.kind not in OPENAI else ():
                answer = await ask(stack, request, admin, **{**request.of(MARK), name: twice[name]})
                assert (answer.status_code, answer.json().get("field")) == (400, f"query.{name}"), (
                    f"{request}: {answer.text}"
                )
                refused.add(name)
        assert refused == twice.keys()
        assert not differences(before, remembered(stack))
        answer = await stack.http["agents"].get("/v1/nodes", params={"status": ["Lost", "Connected"]})
        assert answer.is_success, answer.text


@pytest.mark.looptime
@pytest.mark.timeout(300)
async def test_a_body_that_a_route_does_not_read_is_refused_and_changes_nothing(tmp_path):
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", "default")
        before = remembered(stack)
        walked = [each for each in every_request(stack, names) if each.rule.kind not in OPENAI]
        silent, refused = [each for each in walked if each.body is None], set[str]()
        for request in silent:
            sent = replace(request, body={"nodes": 9})
            answer = await ask(stack, sent, admin, **request.of(MARK))
            problem = answer.json()
            if problem.get("field") == "nodes":  # its body may be left out
                assert answer.status_code == 422, str(request)
                assert problem["detail"].startswith("nodes: unknown field"), f"{request}: {answer.text}"
                continue
            assert (answer.status_code, problem.get("reason")) == (400, "Malformed"), f"{request}: {answer.text}"
            assert problem["field"] == "body", f"{request}: {answer.text}"
            assert all(taken in problem["detail"] for taken in request.takes), f"{request}: {answer.text}"
            refused.add(request.rule.method)
        assert refused >= {"GET", "POST", "DELETE"}
        assert not differences(before, remembered(stack))
        resize = {"params": {"nodes": "3", "project": MARK}, "headers": {"Authorization": f"Bearer {admin}"}}
        for empty in ({}, {"json": {}}, {"content": b" {}\n"}):
            answer = await stack.http["compute"].post("/v1/instances/a:resize", **resize, **empty)
            assert answer.status_code == 202, answer.text


@pytest.mark.looptime
@pytest.mark.timeout(300)
async def test_clients_of_the_model_endpoint_may_add_their_own(tmp_path):
    async with furnished_stack(tmp_path) as (stack, names):
        token = stack.token("user", MARK)
        walked = [each for each in every_request(stack, names) if each.rule.kind in OPENAI]
        for request in walked:
            answer = await ask(stack, request, token, client_version="1.0", **{"api-version": "preview"})
            assert answer.is_success, f"{request}: {answer.text}"
        assert {each.rule.kind for each in walked} == OPENAI


def test_matrixctl_names_a_project_where_it_may():
    for service in RULES:
        paths = json.loads((DOCUMENTS / f"{service}.json").read_text())["paths"]
        found = {
            path.split("/")[2].partition(":")[0]
            for path, methods in paths.items()
            for operation in methods.values()
            if "project" in {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        }
        assert " ".join(sorted(found)) == PROJECT_COLLECTIONS[service]
        silent = [
            f"{method} {path}"
            for path, methods in paths.items()
            for method, operation in methods.items()
            if path.split("/")[2].partition(":")[0] in found and "'project'" not in str(operation.get("parameters"))
        ]
        assert not silent, "one that matrixctl would be refused by"
