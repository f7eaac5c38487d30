"""Who may do what, over HTTP: every route of every service with no token, each role, another project's token, and the
agent of another node. Routes are read off the running services, so a new one is walked too, or refuses to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi import APIRouter

from matrixcommon.api.authorization import ROLES, Scope
from matrixresource.contract.allocations import AllocationRequest
from services.chassis.app import create_app
from services.testing.virtual_time import virtual_time
from tests.services.every_route import RULES, Request, ask, differences, every_request, remembered
from tests.services.furnished import MARK, Furnished, furnished_stack

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def furnished(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Furnished]:
    """One for all of them: what is refused changes nothing, and what is taken is not looked at by another."""
    with virtual_time(asyncio.get_running_loop()):
        async with furnished_stack(tmp_path_factory.mktemp("furnished")) as made:
            yield made


def _described(request: Request, answer: Any) -> str:
    return f"{request}: {answer.status_code} {answer.text[:300]}"


async def test_a_model_user_completes_a_prompt_of_its_projects_models_and_of_no_others(furnished):
    stack, _ = furnished
    endpoint = stack.http["infer"]
    asked = {"model": "chat", "prompt": "Why?", "max_tokens": 4}
    for project, status in ((MARK, 200), ("red", 404)):
        token = {"Authorization": f"Bearer {stack.token('user', project)}"}
        answer = await endpoint.post("/v1/completions", json=asked, headers=token)
        assert answer.status_code == status, answer.text
        models = (await endpoint.get("/v1/models", headers=token)).json()["data"]
        assert [model["id"] for model in models] == (["chat", "deepseek-r1"] if project == MARK else [])
        assert (await endpoint.get("/v1/deployments", headers=token)).status_code == 403


async def test_without_a_token_nothing_is_answered(furnished):
    stack, names = furnished
    before = remembered(stack)
    for request in every_request(stack, names):
        for token in (None, "made-up"):
            answer = await ask(stack, request, token)
            assert answer.status_code == 401, _described(request, answer)
    assert not differences(before, remembered(stack))


async def test_a_role_does_what_is_declared_for_it_and_nothing_else(furnished):
    stack, names = furnished
    tokens = {role: stack.token(role, "red", "sn0-c00-n1" if role == "agent" else "") for role in ROLES}
    before = remembered(stack)
    for request in every_request(stack, names):
        for role, token in tokens.items():
            if role in request.rule.roles:
                continue
            for query in ({}, {"project": MARK}, {"validateOnly": "true"}, {"validateonly": "true"}):
                answer = await ask(stack, request, token, **query)
                assert answer.status_code == 403, f"{role} {_described(request, answer)}"
                assert "{}" not in answer.text, "no placeholder of ours is shown"
    assert not differences(before, remembered(stack))


async def test_what_is_declared_is_what_the_roles_are_for():
    """Written here a second time, by hand, so that a slip in a declaration is seen."""
    physical = {"nodes", "npus", "links", "supernodes", "domains", "quotas", "defragmentations", "drains", "faults"}
    physical |= {"maintenances", "scenarios", "scenario-runs", "workflow-drains"}
    for service, rules in RULES.items():
        for rule in rules.by_route.values():
            if "user" in rule.roles:
                assert rule.kind in ("completions", "models"), rule
            racks = rule.path.endswith("/wiring") or rule.kind == "topology-versions"
            if "agent" in rule.roles and not racks:  # how the cables of its racks lie
                assert rule.kind in ("node-reports", "link-reports", "assignments", "programs", "routes"), rule
            if rule.mutates and "agent" not in rule.roles:
                assert "viewer" not in rule.roles, rule
            if rule.mutates and (rule.kind in physical and (service, rule.kind) != ("compute", "faults")):
                assert rule.roles == {"admin"}, rule
            if rule.kind == "workflow-drains" or (rule.kind == "operations" and service != "compute"):
                assert rule.roles == {"admin"}, "theirs who may drain and defragment"
            if rule.mutates and "editor" in rule.roles:
                assert rule.scope in (Scope.PROJECT, Scope.SHARED), rule


@pytest.mark.parametrize("role", ["viewer", "editor"])
async def test_what_is_another_projects_is_not_there(furnished, role):
    stack, names = furnished
    token = stack.token(role, "red")
    before = remembered(stack)
    walked = 0
    for request in every_request(stack, names):
        rule = request.rule
        if role not in rule.roles or (rule.scope is Scope.NODE and rule.mutates):
            continue
        walked += 1
        if rule.scope in (Scope.PROJECT, Scope.SHARED) or request.path.startswith("/v1/programs/"):
            answer = await ask(stack, request, token, project=MARK)
            assert answer.status_code == 404, _described(request, answer)
        elif rule.scope is Scope.ITSELF and "{}" in rule.path:
            answer = await ask(stack, request, token)
            assert answer.status_code == 404, _described(request, answer)
        if rule.method == "GET" or not rule.mutates:
            answer = await ask(stack, request, token)
            assert answer.status_code < 500, _described(request, answer)
            assert MARK not in answer.text.replace(f"/v1/quotas/{MARK}", "").replace(f"'{MARK}'", ""), _described(
                request, answer
            )
    assert walked > 40
    assert not differences(before, remembered(stack))


async def test_a_body_that_names_another_project_is_refused(furnished):
    stack, _ = furnished
    token = stack.token("editor", "red")
    before = remembered(stack)
    for service, path, body in (
        ("resource", "/v1/allocations/x", {"nodes": 1, "project": MARK}),
        ("resource", "/v1/allocations/x", {"nodes": 1, "antiAffinity": {"allocations": [f"{MARK}/a"]}}),
        ("resource", "/v1/allocations/x", {"nodes": 1, "reservation": f"{MARK}/later"}),
        ("compute", "/v1/instances/x", {"nodes": 1, "project": MARK}),
        ("compute", "/v1/instances/x", {"nodes": 1, "antiAffinity": {"instances": [f"{MARK}/a"]}}),
        ("link", "/v1/communicators/x", {"slice": f"{MARK}/a-ub", "pattern": "ring"}),
        ("infer", "/v1/deployments/x", {"instance": f"{MARK}/a"}),
        ("agents", "/v1/traffic/x", {"slice": f"{MARK}/a-ub", "gbpsPerNpu": 1}),
    ):
        answer = await stack.http[service].put(path, json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 404, (path, body, answer.text)
    for service, path in (("resource", "/v1/allocations/x"), ("compute", "/v1/instances/x")):
        answer = await stack.http[service].put(
            path, json={"nodes": 1}, params={"project": MARK}, headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 404, answer.text
    plan = {"nodes": 1, "project": MARK}
    answer = await stack.http["resource"].post("/v1/plans", json=plan, headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json().get("field")) == (404, "project"), answer.text
    assert not differences(before, remembered(stack))


async def test_an_agents_reports_are_of_its_own_node_each_by_itself(furnished):
    stack, _ = furnished
    mine, other = "sn0-c00-n1", "sn0-c00-n0"
    headers = {"Authorization": f"Bearer {stack.token('agent', 'red', mine)}"}

    async def answers(service: str, path: str, about: dict[str, Any], *nodes: str) -> list[dict[str, Any]]:
        reports = [{"node": node, "epoch": 1 << 40, "sequence": 1, **about} for node in nodes]
        found = await stack.http[service].post(path, json={"reports": reports}, headers=headers)
        return found.json()["answers"]

    reports = (
        ("resource", "/v1/node-reports", {"leaseS": 60, "status": "Clean", "generation": 0}),
        ("link", "/v1/link-reports", {"leaseSeconds": 30}),
    )
    before = remembered(stack)
    for report in reports:
        (refused,) = await answers(*report, other)
        assert (refused["node"], refused["accepted"], refused["reason"]) == (other, False, "Forbidden")
    assert not differences(before, remembered(stack))
    for report in reports:  # of which others hear: what they write down of it then is no part of what was refused
        taken = [(each["node"], each["accepted"]) for each in await answers(*report, other, mine)]
        assert taken == [(other, False), (mine, True)]
    for service, path in (("resource", "/v1/assignments"), ("link", "/v1/programs")):
        items = (await stack.http[service].get(path, headers=headers)).json()["items"]
        assert {item.get("node") or item["name"] for item in items} <= {mine}


async def test_who_may_not_ask_hears_nothing_of_what_is_wrong_with_it(furnished):
    """NUL in a name or parameter is refused to those alone who may ask for the resource at all."""
    stack, _ = furnished
    for path in ("/v1/instances/a%00", "/v1/instances/a?project=%00", "/v1/instances/a?validateOnly=%00"):
        found = []
        for role in (None, "user", "editor"):
            headers = {"Authorization": f"Bearer {stack.token(role, 'red')}" if role else "none"}
            answer = await stack.http["compute"].put(path, json={"nodes": 1}, headers=headers)
            found.append(answer.status_code)
        assert found == [401, 403, 422], path


async def test_a_watch_shows_what_a_list_does(furnished):
    stack, _ = furnished
    headers = {"Authorization": f"Bearer {stack.token('viewer', 'red')}"}
    listed = (await stack.http["resource"].get("/v1/allocations", headers=headers)).json()
    for project in (MARK, "red"):
        await stack.resource.reserve(f"{project}/later2", AllocationRequest(project=project, nodes=1))
    since = {"watch": "true", "resourceVersion": listed["resourceVersion"]}
    async with stack.http["resource"].stream("GET", "/v1/allocations", params=since, headers=headers) as answer:
        seen = ""
        async for line in answer.aiter_lines():
            seen += line
            if "BOOKMARK" in line and seen.count("event:") > 1:
                break
    assert MARK not in seen
    assert '"red"' in seen


async def test_a_route_that_nobody_has_decided_on_keeps_the_service_from_starting():
    api = APIRouter(prefix="/v1")

    @api.get("/secrets")
    async def secrets() -> dict[str, str]:
        return {}

    with pytest.raises(LookupError, match="there is no access rule for GET /v1/secrets"):
        create_app("resource", "MatrixResource", [api], RULES["resource"])
