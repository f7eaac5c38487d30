"""Peerings: islands by default, bridged with both projects' consent, programmed and acknowledged like the rest, withdrawn
cleanly; on VPC rules say what passes, and an answer says which."""

import pytest

from matrixcommon.model.resource_key import key_of
from services.chassis.access import create_token
from tests.matrixlink.fleet import NODES, slice_request

LEFT, RIGHT = NODES[:2], NODES[2:]


async def create_two_slices(stack, plane="ub", projects=("default", "blue"), **more):
    for name, members, project in (("a", LEFT, projects[0]), ("b", RIGHT, projects[1])):
        request = slice_request(plane, members, instance=name, project=project, **more)
        await stack.active(key_of(project, f"{name}-{plane}"), request)
    return [key_of(project, f"{name}-{plane}") for name, project in zip("ab", projects, strict=True)]


async def put(stack, slices, project="default", code=200, name="p1", **more):
    answer = await stack.http.put(f"/v1/peerings/{name}", json={"project": project, "slices": slices, **more})
    assert answer.status_code == code, answer.text
    return answer.json()


async def accept(stack, project="blue", code=200, name="p1"):
    answer = await stack.http.post(f"/v1/peerings/{name}:accept", json={"project": project})
    assert answer.status_code == code, answer.text
    return answer.json()


async def get(stack, name="p1"):
    return (await stack.http.get(f"/v1/peerings/{name}")).json()


def programmed_table(stack, node, slice):
    tables = stack.agents[node].tables(slice)
    return {each["name"]: each for each in tables["peerings"]} if tables else {}


async def test_slices_are_isolated_until_both_projects_consent_and_all_agents_acknowledge(stack):
    slices = await create_two_slices(stack)
    view = await put(stack, slices)
    assert (view["state"], view["acceptedBy"]) == ("PendingAcceptance", ["default"])
    await stack.settle()
    assert not any(programmed_table(stack, node, name) for node in NODES for name in slices)
    assert (await get(stack))["state"] == "PendingAcceptance"
    assert (await accept(stack))["state"] == "Programming"
    with stack.quiet(NODES[3]):
        await stack.settle()
        assert (await get(stack))["state"] == "Programming"
    await stack.settle()
    view = await get(stack)
    assert (view["state"], view["acceptedBy"]) == ("Active", ["blue", "default"])
    keys = {each.isolation_key for each in await stack.client.slices()}
    assert view["isolationKey"] not in keys, "a peering's key is its own"
    peering = programmed_table(stack, NODES[0], "a-ub")["p1"]
    assert (peering["isolation_key"], peering["peers"]) == (view["isolationKey"], RIGHT)
    assert [stripe["weight"] for stripe in peering["stripes"]] == pytest.approx([1 / 7] * 7, abs=1e-8)
    assert stack.agents[NODES[0]].tables("a-ub")["peers"] == [NODES[1]], "the slice itself has the peers it had"
    assert programmed_table(stack, NODES[2], slices[1])["p1"]["peers"] == LEFT


async def test_a_requester_learns_nothing_of_the_other_slice_by_accepting(stack):
    await create_two_slices(stack)
    for name, other in (("p1", "blue/b-ub"), ("p2", "blue/not-there")):
        await put(stack, ["a-ub", other], name=name)
        view = await accept(stack, "default", name=name)
        assert (view["state"], view["acceptedBy"]) == ("PendingAcceptance", ["default"])


async def test_slices_of_one_project_need_no_consent(stack):
    slices = await create_two_slices(stack, projects=("default", "default"))
    assert (await put(stack, slices))["state"] == "Programming"
    await stack.settle()
    first = await get(stack)
    assert first["state"] == "Active"
    assert (await put(stack, slices[::-1]))["etag"] == first["etag"]
    assert (await accept(stack, "default"))["etag"] == first["etag"]


async def test_a_deleted_peering_keeps_its_key_until_no_agent_holds_it(stack):
    slices = await create_two_slices(stack, projects=("default", "default"))
    key = (await put(stack, slices))["isolationKey"]
    await stack.settle()
    with stack.quiet(NODES[3]):
        answer = await stack.http.delete("/v1/peerings/p1")
        assert (answer.status_code, answer.json()["state"]) == (202, "Deleting")
        await stack.settle()
        assert (await get(stack))["state"] == "Deleting"
        assert list(programmed_table(stack, NODES[3], "b-ub")) == ["p1"]
        assert (await stack.client.admit("c", slice_request("rdma", instance="c"))).isolation_key != key
    await stack.settle()
    assert (await stack.http.get("/v1/peerings/p1")).status_code == 404
    assert not any(programmed_table(stack, node, name) for node in NODES for name in slices)
    assert (await stack.client.admit("d", slice_request(instance="d"))).isolation_key == key


async def test_withdrawing_a_slice_ends_its_peerings(stack):
    slices = await create_two_slices(stack, projects=("default", "default"))
    await put(stack, slices)
    await stack.settle()
    await stack.client.withdraw("a-ub")
    await stack.settle()
    assert await stack.client.find_slice("a-ub") is None
    assert (await stack.http.get("/v1/peerings/p1")).status_code == 404
    assert programmed_table(stack, NODES[2], "b-ub") == {}
    assert (await stack.client.find_slice("b-ub")).state == "Active"
    events = (await stack.http.get("/v1/events", params={"filter": "reason=PeeringEnded"})).json()["items"]
    assert sorted(each["about"] for each in events) == ["a-ub", "b-ub"], "once for each side"
    assert "peering p1 ends because slice a-ub is withdrawn" in events[0]["message"]


async def test_peers_route_around_losses_and_follow_members(stack):
    slices = await create_two_slices(stack, projects=("default", "default"))
    await put(stack, slices)
    await stack.settle()
    stack.hardware[NODES[3]].ports["ub-p3-k11"] = 0.0
    await stack.settle()
    detour = programmed_table(stack, NODES[0], "a-ub")["p1"]["detours"][NODES[3]]
    assert detour[3]["spread"][11] == 0.0
    lost = "members' ports below their rate or held down after flapping: 1; drained or not drawn: 0"
    for name, shown in (("a-ub", ("Active", "AllLinksUp", "")), ("b-ub", ("Degraded", "LinksLost", lost))):
        view = await stack.client.find_slice(name)
        degraded = next(each for each in view.conditions if each.type == "Degraded")
        assert (view.state, degraded.reason, degraded.message) == shown, "each says of its own members' links alone"
    await stack.client.admit("b-ub", slice_request(members=RIGHT[:1], instance="b", project="default"))
    await stack.client.program("b-ub")
    await stack.settle()
    assert programmed_table(stack, NODES[0], "a-ub")["p1"]["peers"] == RIGHT[:1]
    assert (await get(stack))["state"] == "Active"


@pytest.mark.parametrize("step", range(3))
async def test_the_service_may_be_restarted_between_any_two_steps(stack, step):
    slices = await create_two_slices(stack)

    def maybe(at):
        if at == step:
            stack.database.close()
            stack.restart()

    await put(stack, slices)
    maybe(0)
    await accept(stack)
    maybe(1)
    await stack.settle()
    assert (await get(stack))["state"] == "Active"
    maybe(2)
    await stack.http.delete("/v1/peerings/p1")
    await stack.settle()
    assert (await stack.http.get("/v1/peerings/p1")).status_code == 404


async def test_a_drain_waits_for_peers(stack):
    slices = await create_two_slices(stack, projects=("default", "default"), qos_class="BestEffort")
    await put(stack, slices)
    await stack.settle()
    answer = await stack.http.put("/v1/drains/d1", json={"elements": [f"{NODES[3]}.ub-p0-k00"]})
    assert answer.json()["state"] == "Draining"
    with stack.quiet(NODES[0]):
        await stack.settle()
        view = (await stack.http.get("/v1/drains/d1")).json()
        assert (view["state"], "a-ub" in view["message"]) == ("Draining", True)
    await stack.settle()
    assert (await stack.http.get("/v1/drains/d1")).json()["state"] == "Drained"


async def test_invalid_peerings_are_refused_with_their_field(stack):
    slices = await create_two_slices(stack)
    await stack.client.admit("c-vpc", slice_request("vpc", instance="c", project="default"))
    for body, field in [
        ({"slices": ["a-ub", "zzz"]}, "slices[1]"),
        ({"slices": ["a-ub", "a-ub"]}, "slices[1]"),
        ({"slices": ["a-ub"]}, "slices"),
        ({"slices": ["a-ub", "c-vpc"]}, "slices[1]"),
        ({"slices": slices, "securityRules": [{}]}, "securityRules"),
        (
            {"slices": slices, "securityRules": [{"ports": [{"first": 0, "last": 1}]}]},
            "securityRules[0].ports[0].first",
        ),
        ({"slices": slices, "securityRules": [{"remote": "10.0.0/99"}]}, "securityRules[0].remote"),
        ({"slices": slices, "securityRules": [{"remote": "web.example"}]}, "securityRules[0].remote"),
        ({"slices": slices, "securityRules": [{"remote": "web:443"}]}, "securityRules[0].remote"),
    ]:
        answer = await stack.http.put("/v1/peerings/p9", json={"project": "default"} | body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert (await stack.http.get("/v1/peerings")).json()["items"] == []
    await put(stack, slices)
    await accept(stack, "green", 403)
    await put(stack, [slices[1], "c-vpc"], code=409)
    desired = slice_request(instance="d").wire() | {"securityRules": [{}]}
    assert (await stack.http.put("/v1/slices/d", json=desired)).json()["field"] == "securityRules"


async def test_a_requester_does_not_learn_whether_another_projects_slice_exists(stack):
    slices = await create_two_slices(stack)
    await stack.client.admit("blue/c-vpc", slice_request("vpc", members=RIGHT, instance="c", project="blue"))
    answers = []
    for name, other in (("p1", slices[1]), ("p2", "blue/nobody"), ("p3", "blue/c-vpc")):
        view = await put(stack, ["a-ub", other], name=name)
        await stack.settle()
        seen = (view, (await stack.http.get(f"/v1/peerings/{name}")).json())
        answers.append(
            [
                {k: each[k] for k in ("state", "plane", "acceptedBy", "projects", "message", "conditions")}
                for each in seen
            ]
        )
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0]["message"] == "waiting for project blue to accept"
    assert "there is no slice" in (await accept(stack, code=422, name="p2"))["detail"], "its owner is told"
    assert "blue/c-vpc on vpc" in (await accept(stack, code=422, name="p3"))["detail"]
    await stack.client.withdraw("blue/c-vpc")
    await stack.settle()
    assert (await stack.http.get("/v1/peerings/p3")).json()["state"] == "PendingAcceptance", "nor when it goes"
    for name in ("p1", "p2", "p3"):
        assert (await stack.http.delete(f"/v1/peerings/{name}")).status_code == 204


async def ask(stack, source, target, **more):
    answer = await stack.http.get("/v1/reachability", params={"from": source, "to": target, **more})
    assert answer.status_code == 200, answer.text
    reported = answer.json()
    return reported["allowed"], reported["reason"], reported["by"]


async def test_reachability_on_ub(stack):
    slices = await create_two_slices(stack)
    assert await ask(stack, "a-ub", "a-ub") == (True, "SameSlice", "slice/a-ub")
    assert await ask(stack, "a-ub", slices[1]) == (False, "NotPeered", "")
    await put(stack, slices)
    assert await ask(stack, "a-ub", slices[1]) == (False, "PeeringNotActive", "peering/p1")
    await accept(stack)
    await stack.settle()
    assert await ask(stack, "a", "blue/b", plane="ub") == (True, "Peered", "peering/p1")
    assert await ask(stack, "10.0.0.0/8", slices[1]) == (False, "NotPeered", "")
    assert (await stack.http.get("/v1/reachability?from=a-ub&to=nobody")).status_code == 404
    assert (await stack.http.get("/v1/reachability?from=1.2.3/99&to=a-ub")).json()["field"] == "from"
    assert (await stack.http.get("/v1/reachability?from=a-ub&to=blue/b-ub&plane=vpc")).json()["field"] == "plane"


async def test_reachability_on_vpc_by_security_rules(stack):
    web = {"protocol": "tcp", "ports": [{"first": 443, "last": 443}], "remote": "a-vpc"}
    office = {"protocol": "any", "remote": "10.0.0.0/8"}
    await stack.active("a-vpc", slice_request("vpc", LEFT, instance="a", project="default"))
    await stack.active(
        "b-vpc", slice_request("vpc", RIGHT, instance="b", project="default", security_rules=[web, office])
    )
    await put(stack, ["a-vpc", "b-vpc"], securityRules=[{"protocol": "icmp"}])
    await stack.settle()
    assert (await get(stack))["state"] == "Active"
    assert await ask(stack, "a-vpc", "b-vpc", port=443) == (True, "RuleAllows", "slice/b-vpc/securityRules[0]")
    assert await ask(stack, "a-vpc", "b-vpc", port=80) == (False, "IngressDenied", "slice/b-vpc")
    assert await ask(stack, "a-vpc", "b-vpc", protocol="icmp") == (True, "RuleAllows", "peering/p1/securityRules[0]")
    assert await ask(stack, "b-vpc", "a-vpc", port=443) == (False, "IngressDenied", "slice/a-vpc")
    assert await ask(stack, "10.1.0.0/16", "b-vpc", port=22) == (True, "RuleAllows", "slice/b-vpc/securityRules[1]")
    assert await ask(stack, "192.168.0.0/16", "b-vpc", port=22) == (False, "IngressDenied", "slice/b-vpc")
    tables = stack.agents[NODES[2]].tables("b-vpc")
    assert [rule["remote"] for rule in tables["security_rules"]] == ["a-vpc", "10.0.0.0/8"]
    assert programmed_table(stack, NODES[2], "b-vpc")["p1"]["security_rules"][0]["protocol"] == "icmp"
    out = {"direction": "egress", "protocol": "udp"}
    await stack.client.admit("a-vpc", slice_request("vpc", LEFT, instance="a", project="default", security_rules=[out]))
    assert await ask(stack, "a-vpc", "b-vpc", port=443) == (False, "EgressDenied", "slice/a-vpc")


async def test_any_active_peering_of_two_slices_allows(stack):
    slices = await create_two_slices(stack, "vpc")
    await put(stack, slices, name="p1", securityRules=[{"protocol": "icmp"}])
    for name, protocol in (("p2", "udp"), ("p3", "tcp")):
        await put(stack, slices, name=name, securityRules=[{"protocol": protocol}])
        await accept(stack, name=name)
    await stack.settle()
    assert [(await get(stack, name))["state"] for name in ("p1", "p2", "p3")] == ["PendingAcceptance"] + ["Active"] * 2
    assert await ask(stack, *slices, protocol="udp") == (True, "RuleAllows", "peering/p2/securityRules[0]")
    assert await ask(stack, *slices, protocol="tcp") == (True, "RuleAllows", "peering/p3/securityRules[0]")
    assert await ask(stack, *slices, protocol="icmp") == (False, "IngressDenied", f"slice/{slices[1]}")


async def test_rules_for_slices_and_other_blocks_do_not_match_an_address(stack):
    remotes = ("blue/a-vpc", "fd00::/8", "192.0.2.7")
    rules = [{"protocol": "any", "remote": remote} for remote in remotes]
    await stack.active("b-vpc", slice_request("vpc", RIGHT, instance="b", project="default", security_rules=rules))
    assert await ask(stack, "10.0.0.0/8", "b-vpc") == (False, "IngressDenied", "slice/b-vpc")
    assert await ask(stack, "192.0.2.7", "b-vpc") == (True, "RuleAllows", "slice/b-vpc/securityRules[2]")


async def test_a_tenants_token_cannot_change_other_tenants_resources_or_the_fabric(stack, tmp_path):
    tokens = {
        who: create_token(tmp_path / "tokens.json", who, project, "admin" if who == "compute" else "editor")
        for who, project in (("ada", "red"), ("ben", "blue"), ("eve", "green"), ("compute", "default"))
    }
    slices = await create_two_slices(stack, projects=("red", "blue"))
    stack.settings = stack.settings.model_copy(update={"tokens": tmp_path / "tokens.json"})
    stack.restart()

    async def ask(who, method, path, body=None):
        headers = {"authorization": f"Bearer {tokens[who]}"}
        return (await stack.http.request(method, f"/v1/{path}", json=body, headers=headers)).status_code

    desired = slice_request(members=LEFT, instance="a", project="red").wire()
    assert await ask("ben", "PUT", "slices/a-ub", desired) == 404
    assert await ask("ben", "PUT", "slices/a-ub?project=red", desired) == 404
    for path in ("slices/a-ub", "slices/a-ub?project=red"):
        assert await ask("ben", "DELETE", path) == await ask("ben", "GET", path) == 404
    assert await ask("ada", "PUT", "slices/a-ub", desired) == 200
    assert await ask("compute", "PUT", "slices/a-ub?project=red", desired) == 200
    peering = {"project": "red", "slices": slices}
    assert await ask("ben", "PUT", "peerings/p1?project=red", peering) == 404
    assert await ask("ada", "PUT", "peerings/p1", peering) == 200
    assert await ask("ada", "POST", "peerings/p1:accept", {"project": "blue"}) == 404
    assert await ask("eve", "GET", "peerings/p1?project=red") == 404
    assert await ask("eve", "DELETE", "peerings/p1?project=red") == 404
    assert await ask("ben", "POST", "peerings/p1:accept?project=red", {"project": "blue"}) == 200
    assert await ask("ada", "PUT", "drains/d1", {"elements": ["sn0-l2p3-k11"]}) == 403
    assert await ask("compute", "PUT", "drains/d1", {"elements": ["sn0-l2p3-k11"]}) == 200
    assert await ask("ben", "DELETE", "peerings/p1?project=red") == 202
