"""The edge of every service: bad input gets a clear problem naming the field, changes nothing, shows no traceback."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from matrixcommon.api.client import list_all
from matrixcommon.model.errors import InvalidField, NotFound, Unauthorized
from services.chassis.access import Principal, Tokens, add_token, create_token, revoke_token
from tests.services.every_route import RULES, SCENARIO
from tests.stack import Stack

pytestmark = pytest.mark.looptime

JSON = {"content-type": "application/json"}

BAD = [
    # sentence, service, method, path, body, status, reason, field
    ("malformed JSON", "compute", "PUT", "/v1/instances/a", b'{"nodes": ', 400, "Malformed", "body"),
    ("no JSON at all", "resource", "PUT", "/v1/allocations/a", b"nodes=3", 400, "Malformed", "body"),
    ("an unknown field", "compute", "PUT", "/v1/instances/a", {"nodes": 1, "speed": 1}, 422, "InvalidField", "speed"),
    ("a nested unknown field", "compute", "PUT", "/v1/instances/a", {"nodes": 1, "network": {"ub": {"x": 1}}}, 422, "InvalidField", "network.ub.x"),
    ("a floor for BestEffort", "compute", "PUT", "/v1/instances/a", {"nodes": 1, "network": {"vpc": {"qosClass": "BestEffort", "floorGbpsPerNpu": 1}}}, 422, "InvalidField", "network.vpc"),
    ("no nodes", "compute", "PUT", "/v1/instances/a", {"nodes": 0}, 422, "InvalidField", "nodes"),
    ("a thousand million nodes", "compute", "PUT", "/v1/instances/a", {"nodes": 10**9}, 422, "InvalidField", "nodes"),
    ("a scenario that nothing stops", "compute", "PUT", "/v1/scenarios/a", SCENARIO | {"stopConditions": []}, 422, "InvalidField", "stopConditions"),
    ("a scenario of an unknown fault", "compute", "POST", "/v1/scenario-runs", {"definition": SCENARIO | {"method": [SCENARIO["method"][0] | {"fault": "flood"}]}}, 422, "InvalidField", "definition.method[0].fault"),
    ("a run of no scenario", "compute", "PUT", "/v1/scenario-runs/a", {"seed": 3}, 422, "InvalidField", None),
    ("0 NPUs", "resource", "PUT", "/v1/allocations/a", {"npus": 0}, 422, "InvalidField", "npus"),
    ("a thousand million NPUs", "resource", "PUT", "/v1/allocations/a", {"npus": 10**9}, 422, "InvalidField", "npus"),
    ("a fraction that is no die", "resource", "POST", "/v1/plans", {"npus": 1.25}, 422, "InvalidField", "npus"),
    ("an unknown level", "resource", "PUT", "/v1/allocations/a", {"npus": 2, "placement": {"level": "rack"}}, 422, "InvalidField", "placement.level"),
    ("near nobody", "resource", "PUT", "/v1/allocations/a", {"npus": 2, "affinity": {"allocations": ["no"]}}, 422, "InvalidField", "affinity.allocations"),
    ("too many spares", "resource", "PUT", "/v1/allocations/a", {"nodes": 1, "spares": 49}, 422, "InvalidField", "spares"),
    ("negative NPUs", "resource", "PUT", "/v1/allocations/a", {"npus": -8}, 422, "InvalidField", "npus"),
    ("an old topology", "resource", "PUT", "/v1/allocations/a", {"nodes": 1, "topologyVersion": "v1-000000000000"}, 409, "StaleTopology", "topologyVersion"),
    ("a plan for another topology", "resource", "POST", "/v1/plans", {"nodes": 1, "topologyVersion": "old"}, 409, "StaleTopology", "topologyVersion"),
    ("a plan for nothing", "resource", "POST", "/v1/plans", {}, 422, "InvalidField", None),
    ("parts that do not come out even", "resource", "PUT", "/v1/allocations/a", {"npus": 5, "npusPerNode": 2}, 422, "InvalidField", "npusPerNode"),
    ("a quota below nothing", "resource", "PUT", "/v1/quotas/a", {"npus": -1}, 422, "InvalidField", "npus"),
    ("a domain that is none", "resource", "POST", "/v1/domains/sn0-c99:close", None, 404, "NotFound", "name"),
    ("a reservation that ends after the last timestamp", "resource", "PUT", "/v1/reservations/a", {"nodes": 1, "startsAt": "9999-12-31T00:00:00Z", "durationS": 1e6}, 422, "InvalidField", "durationS"),
    ("one that starts after it", "resource", "PUT", "/v1/reservations/a", {"nodes": 1, "startsAt": "9999-12-31T23:59:59-10:00", "durationS": 1}, 422, "InvalidField", "startsAt"),
    ("a reservation with a lease", "resource", "PUT", "/v1/reservations/a", {"nodes": 1, "startsAt": "2100-01-01T00:00:00Z", "durationS": 60, "leaseS": 60}, 422, "InvalidField", "leaseS"),
    ("a lease without end", "compute", "PUT", "/v1/instances/a", {"nodes": 1, "leaseS": 1e12}, 422, "InvalidField", "leaseS"),
    ("a quota beyond all numbers", "resource", "PUT", "/v1/quotas/a", {"cpus": 10**30}, 422, "InvalidField", "cpus"),
    ("nodes and npus", "resource", "PUT", "/v1/allocations/a", {"npus": 8, "nodes": 1}, 422, "InvalidField", None),
    ("a wrong type", "compute", "PUT", "/v1/instances/a", {"nodes": "many"}, 422, "InvalidField", "nodes"),
    ("a list", "compute", "PUT", "/v1/instances/a", [1], 422, "InvalidField", None),
    ("a name that is no name", "compute", "PUT", "/v1/instances/A_b", {"nodes": 1}, 422, "InvalidField", "name"),
    ("a name too long for its slices", "compute", "PUT", f"/v1/instances/{'a' * 58}", {"nodes": 1}, 422, "InvalidField", "name"),
    ("a name with a slash", "resource", "PUT", "/v1/allocations/a%2Fb", {"nodes": 1}, 404, "NotFound", None),
    ("too large a body", "compute", "PUT", "/v1/instances/a", {"nodes": 1, "labels": {"a": "x" * (2 << 20)}}, 413, "TooLarge", "body"),
    ("a wrong etag", "compute", "DELETE", "/v1/instances/there", None, 412, "PreconditionFailed", "If-Match"),
    ("an unknown instance", "compute", "GET", "/v1/instances/nobody", None, 404, "NotFound", "name"),
    ("an unknown path", "resource", "GET", "/v1/nothing", None, 404, "NotFound", None),
    ("a verb that is none", "compute", "POST", "/v1/instances/there:reboot", None, 404, "NotFound", None),
    ("a verb of what has none", "compute", "POST", "/v1/scenarios/a:run", None, 405, "MethodNotAllowed", None),
    ("firmware of no version", "compute", "PUT", "/v1/maintenances/m", {"target": {"node": "sn0-c00-n0"}, "action": "Firmware"}, 422, "InvalidField", "firmware"),
    ("a time of a budget without its length", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "2", "durationS": 60}, 422, "InvalidField", "schedule"),
    ("fewer at most than at least", "compute", "PUT", "/v1/scaling-policies/p", {"scaleTargetRef": {"name": "there"}, "minReplicas": 3, "maxReplicas": 2}, 422, "InvalidField", "maxReplicas"),
    ("another method", "resource", "PATCH", "/v1/nodes", None, 405, "MethodNotAllowed", None),
    ("a page size too large", "resource", "GET", "/v1/nodes?pageSize=5000", None, 422, "InvalidField", "pageSize"),
    ("a truth value for a number", "resource", "PUT", "/v1/allocations/a", {"nodes": True}, 422, "InvalidField", "nodes"),
    ("a text for a number", "compute", "PUT", "/v1/instances/a", {"nodes": "8"}, 422, "InvalidField", "nodes"),
    ("a made-up page token", "resource", "GET", "/v1/nodes?pageToken=abc!", None, 422, "InvalidField", "pageToken"),
    ("a filter that cannot be read", "resource", "GET", "/v1/nodes?filter=state", None, 422, "InvalidField", "filter"),
    ("a watch in an order", "resource", "GET", "/v1/nodes?watch=true&orderBy=name", None, 422, "InvalidField", "orderBy"),
    ("a page of a watch", "compute", "GET", "/v1/instances?watch=true&pageSize=3", None, 422, "InvalidField", "pageSize"),
    ("a list of what was", "resource", "GET", "/v1/nodes?resourceVersion=3", None, 422, "InvalidField", "resourceVersion"),
    ("a block of nothing", "resource", "POST", "/v1/defragmentations", {"nodes": 0}, 422, "InvalidField", "nodes"),
    ("no block and no request", "resource", "POST", "/v1/defragmentations", {}, 422, "InvalidField", None),
    ("room there is", "resource", "POST", "/v1/defragmentations", {"nodes": 2}, 409, "Conflict", None),
    ("more room than there can be", "resource", "POST", "/v1/defragmentations", {"nodes": 5}, 409, "ExceedsDomain", "nodes"),
    ("a plan that is none", "resource", "POST", "/v1/defragmentations/no:approve", None, 404, "NotFound", "name"),
    ("a member that is none", "resource", "POST", "/v1/allocations/there:relocate", {"node": "sn0-c11-n3", "to": "sn0-c10-n0"}, 422, "InvalidField", "node"),
    ("a rung that is none", "compute", "PUT", "/v1/recovery-policies/p", {"rungs": ["pray"]}, 422, "InvalidField", "rungs"),
    ("what shall follow is unknown", "compute", "PUT", "/v1/recovery-policies/p", {"onExhausted": "Weep"}, 422, "InvalidField", "onExhausted"),
    ("a drain that ended before", "compute", "PUT", "/v1/recovery-policies/p", {"drainSeconds": -1}, 422, "InvalidField", "drainSeconds"),
    ("an instance that can be none", "compute", "PUT", "/v1/recovery-policies/p", {"instance": "*"}, 422, "InvalidField", "instance"),
    ("a budget that is no number", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "few"}, 422, "InvalidField", "nodes"),
    ("a budget of more than all", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "101%"}, 422, "InvalidField", "nodes"),
    ("no timetable", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "0", "schedule": "at nine", "durationS": 60}, 422, "InvalidField", "schedule"),
    ("a day that never comes", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "0", "schedule": "0 9 31 2 *", "durationS": 60}, 422, "InvalidField", "schedule"),
    ("a timetable without an end", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "0", "schedule": "0 9 * * *"}, 422, "InvalidField", "schedule"),
    ("a reason that is none", "compute", "PUT", "/v1/disruption-budgets/b", {"nodes": "0", "reasons": ["Boredom"]}, 422, "InvalidField", "reasons[0]"),
    ("a floor above the size", "compute", "PUT", "/v1/instances/x", {"nodes": 2, "minNodes": 3}, 422, "InvalidField", "minNodes"),
    ("the second policy of a project", "compute", "PUT", "/v1/recovery-policies/second", {}, 409, "Conflict", "instance"),
    ("an unknown fault kind", "agents", "PUT", "/v1/faults/f", {"kind": "meteor", "target": "sn0-c00-n0"}, 422, "InvalidField", "kind"),
    ("a node that is none", "agents", "PUT", "/v1/faults/f", {"kind": "node-down", "target": "sn0-c77-n0"}, 404, "NotFound", "target"),
    ("a target that is neither node nor switch", "agents", "PUT", "/v1/faults/f", {"kind": "node-down", "target": "bad"}, 422, "InvalidField", "target"),
    ("a target that is no text", "agents", "PUT", "/v1/faults/f", {"kind": "node-down", "target": 5}, 422, "InvalidField", "target"),
    ("a target that is an object", "agents", "PUT", "/v1/faults/f", {"kind": "node-down", "target": {}}, 422, "InvalidField", "target"),
    ("no target", "agents", "PUT", "/v1/faults/f", {"kind": "node-down"}, 422, "InvalidField", "target"),
    ("a number among names", "resource", "PUT", "/v1/allocations/a", {"npus": 2, "affinity": {"allocations": [1]}}, 422, "InvalidField", "affinity.allocations[0]"),
    ("a port that is none", "agents", "PUT", "/v1/faults/f", {"kind": "link-down", "target": "sn0-c00-n0", "parameters": {"port": "x"}}, 422, "InvalidField", "parameters.port"),
    ("a plane that is none", "link", "PUT", "/v1/slices/s", {"plane": "sea"}, 422, "InvalidField", None),
]  # fmt: skip


async def test_bad_input_is_refused_with_its_field_and_changes_nothing(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("there", 1)
        await stack.active("there", 1)
        await stack.http["compute"].put("/v1/recovery-policies/first", json={})
        before = {name: await state(stack, name) for name in ("resource", "link", "compute")}
        for sentence, service, method, path, body, status, reason, field in BAD:
            content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            headers = dict(JSON) if content is not None else {}
            if reason == "PreconditionFailed":
                headers["If-Match"] = '"0"'
            answer = await stack.http[service].request(method, path, content=content, headers=headers)
            problem = answer.json()
            assert (answer.status_code, problem["reason"]) == (status, reason), (sentence, problem)
            assert answer.headers["content-type"] == "application/problem+json", sentence
            assert field is None or problem.get("field") == field, (sentence, problem)
            assert problem["requestId"] == answer.headers["x-request-id"], sentence
            assert "Traceback" not in answer.text, sentence
        assert {name: await state(stack, name) for name in ("resource", "link", "compute")} == before


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
async def test_a_body_that_is_not_said_to_be_json_is_asked_for_as_such(tmp_path, kind):
    async with Stack(tmp_path) as stack:
        headers = {"Content-Type": kind} if kind else {}
        for service, path, body in (
            ("compute", "/v1/instances/a", b'{"nodes": 1}'),
            ("resource", "/v1/allocations/a", b'{"nodes": 1}'),
            ("agents", "/v1/faults/f", b'{"kind": "node-down", "target": "sn0-c00-n0"}'),
        ):
            answer = await stack.http[service].put(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["field"]) == (400, "Content-Type"), answer.text
            assert "Content-Type: application/json" in answer.json()["detail"]


async def test_a_method_that_is_not_served_is_answered_with_those_that_are(tmp_path):
    async with Stack(tmp_path) as stack:
        for service, path, served in (
            ("resource", "/v1/allocations/a", "DELETE, GET, PUT"),
            ("resource", "/v1/nodes", "GET"),
            ("link", "/v1/slices/a", "DELETE, GET, PUT"),
        ):
            answer = await stack.http[service].patch(path)
            assert (answer.status_code, answer.headers["Allow"]) == (405, served)
            assert answer.json()["detail"] == f"PATCH is not allowed at {path}; allowed: {served}"


async def test_an_unknown_verb_is_answered_with_those_that_there_are(tmp_path):
    async with Stack(tmp_path) as stack:
        answer = await stack.http["compute"].post("/v1/instances/a:reboot")
        known = ":move, :renew, :resize, :restart, :retry, :start, :stop"
        assert answer.json()["detail"] == f"unknown verb :reboot of /v1/instances/a; known are {known}"


async def test_a_verb_asked_with_another_method_is_answered_with_its_own(tmp_path):
    """In every service, of what exists and what does not, and whatever a resource of that name would be answered with."""
    async with Stack(tmp_path, infer=True) as stack:
        verbs = [
            (service, rule)
            for service, rules in RULES.items()
            for rule in rules.by_route.values()
            if rule.path.rpartition(":")[1]
        ]
        assert {service for service, _ in verbs} >= {"resource", "link", "compute", "infer"}
        for service, rule in verbs:
            path = re.sub(r"\{\w+\}", "a", rule.path)
            others = {"GET", "PUT", "DELETE", "PATCH", "POST", "HEAD"} - {rule.method}
            for method in sorted(others):
                answer = await stack.http[service].request(method, path, json={"nodes": 1})
                assert (answer.status_code, answer.headers["Allow"]) == (405, rule.method), (method, path, answer.text)
                if method != "HEAD":
                    assert answer.json()["reason"] == "MethodNotAllowed"
                    assert answer.json()["detail"] == f"{method} is not allowed at {path}; allowed: {rule.method}"


async def test_a_verb_asked_with_another_method_is_not_told_to_strangers(tmp_path):
    async with Stack(tmp_path, tokens=True) as stack:
        answer = await stack.http["compute"].get("/v1/instances/a:stop", headers={"Authorization": "Bearer nobody"})
        assert answer.status_code == 401


async def test_changes_of_one_instant_are_operations_of_their_own(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("a", 2)
        await stack.active("a", 2)
        names = set()
        for nodes in (600, 601, 602):
            body = {"nodes": nodes, "placement": {"policy": "spread"}}
            answer = await stack.http["compute"].put("/v1/instances/a", json=body)
            assert answer.status_code == 202, answer.text
            names.add(answer.json()["operation"])
            while (await stack.get("compute", "/v1/instances/a")).json()["state"] == "Updating":
                await asyncio.sleep(0)  # it is refused, and no time passes
        assert len(names) == 3


async def state(stack: Stack, service: str) -> list[str]:
    collections = {"resource": ["allocations", "nodes"], "link": ["slices"], "compute": ["instances"]}[service]
    return [(await stack.get(service, f"/v1/{name}")).text.partition('"resourceVersion"')[0] for name in collections]


async def test_validate_only_says_what_would_be_and_does_nothing(tmp_path):
    async with Stack(tmp_path) as stack:
        plan = await stack.http["resource"].put("/v1/allocations/a?validateOnly=true", json={"nodes": 5})
        assert len(plan.json()["members"]) == 5
        assert await stack.resource.allocations() == []
        fits = await stack.http["compute"].put("/v1/instances/a?validateOnly=true", json={"nodes": 5})
        assert fits.status_code == 202
        not_so = await stack.http["compute"].put("/v1/instances/a?validateOnly=true", json={"nodes": 50})
        assert (not_so.status_code, not_so.json()["reason"]) == (409, "ExceedsDomain")
        assert await stack.compute.instances() == []


async def test_lists_page_filter_order_and_watch(tmp_path):
    async with Stack(tmp_path) as stack:
        seen, token = [], None
        while True:
            params = {"pageSize": 20, "orderBy": "name desc"} | ({"pageToken": token} if token else {})
            page = (await stack.get("resource", "/v1/nodes", params=params)).json()
            seen += [item["name"] for item in page["items"]]
            token = page.get("nextPageToken")
            if token is None:
                break
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == 48
        rv = page["resourceVersion"]
        await stack.http["resource"].put("/v1/allocations/a", json={"nodes": 1})
        async for event in stack.resource.watch("allocations", rv):
            if event.type != "BOOKMARK":
                assert (event.type, event.view["name"]) == ("ADDED", "a")
                assert event.rv > rv
                break


async def test_lists_are_ordered_by_several_fields_each_in_its_direction(tmp_path):
    async with Stack(tmp_path) as stack:
        assert (await stack.http["resource"].put("/v1/allocations/a", json={"nodes": 5})).is_success
        for order in ("state, name desc", "state desc,cabinet,name desc"):
            seen = await list_all(stack.http["resource"], "/v1/nodes", {"pageSize": 7, "orderBy": order})
            expected = (await stack.get("resource", "/v1/nodes", params={"pageSize": 1000})).json()["items"]
            for part in reversed(order.split(",")):
                field, _, direction = part.strip().partition(" ")
                expected.sort(key=lambda node, field=field: node[field], reverse=direction == "desc")
            assert [node["name"] for node in seen] == [node["name"] for node in expected]


@pytest.mark.parametrize("query", ["filter=cabnet=x", "orderBy=cabnet", "orderBy=name,cabnet desc", "orderBy=name up"])
async def test_a_field_that_is_not_there_is_named_in_every_list(tmp_path, query):
    async with Stack(tmp_path, infer=True) as stack:
        assert (
            await stack.http["agents"].put("/v1/faults/f", json={"kind": "node-down", "target": "sn0-c05-n0"})
        ).is_success
        for service, path in (("resource", "/v1/nodes"), ("link", "/v1/forwarding-tables"), ("agents", "/v1/faults")):
            answer = await stack.get(service, f"{path}?{query}")
            assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0]), (path, answer.text)


async def test_quotas_are_called_like_projects(tmp_path):
    async with Stack(tmp_path) as stack:
        for name in ("Bad_Name", "x" * 300, "a%00b", "a%0ab", "-a", "a-"):
            answer = await stack.http["resource"].put(f"/v1/quotas/{name}", json={"npus": 8})
            assert (answer.status_code, answer.json()["field"]) == (422, "name"), name
        assert (await stack.get("resource", "/v1/quotas")).json()["items"] == []


async def test_a_parameter_with_nul_is_named(tmp_path):
    async with Stack(tmp_path) as stack:
        for query, field in (("filter=state%3Da%00b", "filter"), ("project=%00", "project"), ("%00=1", "query")):
            answer = await stack.get("resource", f"/v1/nodes?pageSize=1&{query}")
            assert (answer.status_code, answer.json()["field"]) == (422, field), query


async def test_a_plane_without_promise_has_no_floor(tmp_path):
    async with Stack(tmp_path) as stack:
        body = {"nodes": 1, "network": {"ub": {"qosClass": "BestEffort", "floorGbpsPerNpu": 10}}}
        answer = await stack.http["compute"].put("/v1/instances/a", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, "network.ub")
        assert await stack.compute.instances() == []


def test_a_token_belongs_to_a_role(tmp_path):
    file = tmp_path / "tokens.json"
    tokens = Tokens(file)
    viewer = create_token(file, "eve", "default", "viewer")
    add_token(file, "secret", Principal("fleet", "*", "agent", "sn0-*"))
    assert viewer not in file.read_text(), "only digests are kept"
    assert tokens.principal(f"Bearer {viewer}").role == "viewer"
    fleet = tokens.principal("Bearer secret")
    assert (fleet.may_report_for("sn0-c00-n0"), fleet.may_report_for("sn1-c00-n0")) == (True, False)
    for wrong in (None, "", "Bearer", "Bearer nope", "Basic secret"):
        with pytest.raises(Exception, match="token"):
            tokens.principal(wrong)


def test_a_token_expires_and_can_be_revoked(tmp_path):
    file, now = tmp_path / "tokens.json", [1000.0]
    tokens = Tokens(file, lambda: now[0])
    token = create_token(file, "eve", "red", "user", expires_at=1060.0)
    assert tokens.principal(f"Bearer {token}").role == "user"
    now[0] = 1060.0
    with pytest.raises(Unauthorized, match="expired"):
        tokens.principal(f"Bearer {token}")
    lasting = create_token(file, "eve", "red", "user")
    assert tokens.principal(f"Bearer {lasting}").name == "eve"
    assert len(revoke_token(file, "eve")) == 2
    with pytest.raises(Unauthorized):
        tokens.principal(f"Bearer {lasting}")
    with pytest.raises(NotFound):
        revoke_token(file, "eve")


def test_of_tokens_made_at_once_none_is_lost(tmp_path):
    file = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: create_token(file, f"u{number}", "red", "viewer"), range(40)))
    tokens = Tokens(file)
    assert {tokens.principal(f"Bearer {token}").name for token in made} == {f"u{number}" for number in range(40)}


@pytest.mark.parametrize(
    "wrong", [("x", "red", "king"), ("x", "Re/d", "viewer"), ("x", "red", "agent"), ("x", "red", "viewer", "sn0-*")]
)
def test_a_token_that_cannot_be_is_refused(tmp_path, wrong):
    with pytest.raises(InvalidField):
        create_token(tmp_path / "tokens.json", *wrong)


@pytest.mark.parametrize("service", ["resource", "link", "compute", "infer", "agents"])
async def test_metrics_are_for_those_who_may_read_of_every_project(tmp_path, service):
    async with Stack(tmp_path, tokens=True, infer=service == "infer") as stack:
        http, seen = stack.http[service], {}
        unknown = await http.get("/metrics", headers={"Authorization": ""})
        assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, 'Bearer realm="cloudmatrix"')
        for role, project in (("viewer", "*"), ("admin", "red"), ("viewer", "red"), ("user", "*"), ("agent", "*")):
            token = stack.token(role, project, "*" if role == "agent" else "")
            answer = await http.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            seen[role, project] = answer.status_code
        assert list(seen.values()) == [200, 200, 403, 403, 403], seen
