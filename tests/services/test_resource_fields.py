"""Every resource carries the same fields, and what has no etag refuses to be changed under one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from matrixcommon.model.resource_model import ResourceView
from tests.services.every_route import RULES, ask, differences, every_request, remembered
from tests.services.furnished import MARK, furnished_stack

PROMISED = {"name", "project", "labels", "generation", "etag", "state", "conditions"}
DOCUMENTS = Path(__file__).parents[2] / "docs" / "reference" / "openapi"
WORKED_OUT = {
    ("link", "telemetry"): "rates",
    ("link", "fabric-views"): "what an instance may use now",
    ("compute", "faults"): "what is found of members",
    ("compute", "stuck"): "what waits for too long",
    ("compute", "recovery-rules"): "the table as it is read",
    ("compute", "reliability"): "sums over what happened to an instance",
    ("resource", "stuck"): "what waits for too long",
    ("link", "stuck"): "what waits for too long",
    ("infer", "stuck"): "what waits for too long",
    ("infer", "usage"): "a meter's reading",
    ("infer", "models"): "OpenAI's shape",
    ("agents", "nodes"): "a look at emulated hardware",
}
"""Answers to a question, and no resources: they have no life of their own."""
KINDS = [
    (service, kind)
    for service, rules in RULES.items()
    for kind in rules.kinds
    if {"LIST", "GET"} & set(kind.verbs) and (service, kind.collection) not in WORKED_OUT
]

NOT_FURNISHED = {"drains", "workflow-drains"}
"""Kinds that a furnished stack has none of."""


def shown_fields(service: str, kind) -> set[str]:
    """The fields of what a kind shows: by its declaration, else by the document of its route."""
    if kind.view is not None:
        return {field.alias or name for name, field in kind.view.model_fields.items()}
    document = json.loads((DOCUMENTS / f"{service}.json").read_text())
    path = next(path for path in document["paths"] if path.startswith(f"/v1/{kind.collection}/{{"))
    verbs = [document["paths"][path][verb] for verb in ("get", "put") if verb in document["paths"][path]]
    schemas = [verb["responses"]["200"]["content"]["application/json"]["schema"] for verb in verbs]
    name = next(schema["$ref"].rsplit("/", 1)[1] for schema in schemas if "$ref" in schema)
    return set(document["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize(("service", "kind"), KINDS, ids=[f"{service}-{kind.collection}" for service, kind in KINDS])
def test_every_resource_carries_what_every_resource_does(service, kind):
    assert shown_fields(service, kind) >= PROMISED
    if kind.view is not None:
        assert issubclass(kind.view, ResourceView)


@pytest.mark.timeout(400)
@pytest.mark.looptime
async def test_a_change_under_an_etag_is_compared_or_refused_and_never_just_done(tmp_path):
    """412 or 404 where there is a version to compare with, 400 naming If-Match where there is none."""
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", MARK)
        before = remembered(stack)
        for request in every_request(stack, names):
            if not request.rule.mutates:
                continue
            answer = await ask(stack, request, admin, if_match='"999999"')
            where = f"{request}: {answer.status_code} {answer.text[:200]}"
            assert answer.status_code in (400, 404, 412), where
            if answer.status_code == 400:
                assert answer.json()["field"] == "If-Match", where
        assert not differences(before, remembered(stack))


@pytest.mark.timeout(400)
@pytest.mark.looptime
async def test_what_is_to_be_new_is_refused_where_it_is_there_and_made_where_it_is_not(tmp_path):
    """`If-None-Match: *`: 412 where there is one of that name, 400 where nothing is made of a name."""
    made, refused = set(), set()
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", MARK)
        before = remembered(stack)
        for request in every_request(stack, names):
            if not request.rule.mutates:
                continue
            for asked in ("*", '"1"') if request.rule.kind not in NOT_FURNISHED else ('"1"',):
                answer = await ask(stack, request, admin, if_none_match=asked)
                where = f"{request}: {answer.status_code} {answer.text[:200]}"
                assert answer.status_code in (400, 404, 412), where
                if answer.status_code != 404:
                    assert answer.json()["field"] == "If-None-Match", where
                refused |= {request.path} if answer.status_code == 412 else set()
        assert not differences(before, remembered(stack))
        for request in every_request(stack, names):
            if request.rule.method == "PUT" and request.rule.kind in ("instances", "disruption-budgets", "scenarios"):
                new = replace(request, path=request.rule.path.replace("{}", "brand-new"))
                both = await ask(stack, new, admin, if_match="*", if_none_match="*")
                assert (both.status_code, both.json()["field"]) == (400, "If-None-Match"), both.text
                for expected in (True, False):
                    answer = await ask(stack, new, admin, if_none_match="*")
                    assert answer.is_success is expected, answer.text
                made.add(request.rule.kind)
    assert made == {"instances", "disruption-budgets", "scenarios"}
    assert len(refused) >= 15, refused


@pytest.mark.timeout(400)
@pytest.mark.looptime
async def test_labels_are_those_that_were_asked_for_last_or_the_request_is_refused(tmp_path):
    """What is acknowledged is done: a resource asked for again under other labels has them afterwards."""
    asked, wrong = [], []
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", MARK)
        for request in every_request(stack, names):
            kind = next((kind for service, kind in KINDS if service == request.service and is_of(kind, request)), None)
            if request.rule.method != "PUT" or kind is None or not takes_labels(kind):
                continue
            # The allocation that is there is an instance's, which says what its labels are.
            name = "own" if kind.collection == "allocations" else request.path.rpartition("/")[2]
            for labels in ({"team": "one"}, {"team": "two", "tier": "gold"}, {}):
                body = (request.body or {}) | {"labels": labels} | ({"nodes": 1} if name == "own" else {})
                labelled = replace(request, path=request.rule.path.replace("{}", name), body=body)
                answer = await ask(stack, labelled, admin)
                if answer.is_success:
                    view = answer.json()
                    shown = {key: value for key, value in view["labels"].items() if "cloudmatrix.io/" not in key}
                    wrong += [f"{request}: {shown} instead of {labels}"] if shown != labels else []
                    asked.append(kind.collection)
                else:
                    assert answer.status_code in (409, 422), f"{request}: {answer.text}"
    assert not wrong
    assert set(asked) >= {"allocations", "instances", "slices", "peerings", "communicators", "reservations"}, asked


def test_one_of_each_kind_is_called_so_in_words():
    called = {kind.collection: kind.singular for rules in RULES.values() for kind in rules.kinds}
    assert called | {
        "switches": "switch", "recovery-policies": "recovery policy", "qos-classes": "qos class", "processes": "process",
        "nodes": "node", "traffic": "traffic", "forwarding-tables": "forwarding table", "scenario-runs": "scenario run",
    } == called  # fmt: skip


def is_of(kind, request) -> bool:
    return request.rule.path == f"/v1/{kind.collection}/{{}}"


def takes_labels(kind) -> bool:
    return kind.request is not None and "labels" in kind.request.model_fields
