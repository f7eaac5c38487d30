"""Roles and bindings are enforced: what they give, what they refuse and how, who may grant, who may act as others."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.kubeapi.controllers.cluster.cluster_roles import aggregate_rules
from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_widget

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NS = "/api/v1/namespaces/default"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


def a_rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return rule | ({"resourceNames": names.split()} if names else {})


async def grant(
    session: ApiSession, subject: dict[str, Any] | str, *rules: dict[str, Any], cluster: bool = False
) -> None:
    """A role of these rules and a binding to the subject, in default or everywhere."""
    reported = {"kind": "User", "name": subject} if isinstance(subject, str) else subject
    kind, root = ("ClusterRole", RBAC) if cluster else ("Role", f"{RBAC}/namespaces/default")
    name = reported["name"].replace(":", "-")
    role = await session.post(f"{root}/{kind.lower()}s", {"metadata": {"name": name}, "rules": list(rules)})
    assert role.code == 201, role.body
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    body = {"metadata": {"name": name}, "roleRef": ref, "subjects": [reported]}
    binding = await session.post(f"{root}/{kind.lower()}bindings", body)
    assert binding.code == 201, binding.body


async def bind(session: ApiSession, user: str, cluster_role: str, namespace: str = "") -> None:
    root = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
    reported = await session.post(
        root, {"metadata": {"name": f"{user}-{cluster_role}"}, "roleRef": ref, "subjects": subjects}
    )
    assert reported.code == 201, reported.body


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", f"{NS}/pods/p", 'pods "p" is forbidden: User "ann" cannot get resource "pods" in API group "" in the namespace "default"'),
        ("GET", "/api/v1/pods", 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope'),
        ("GET", "/api/v1/pods?watch=1", 'pods is forbidden: User "ann" cannot watch resource "pods" in API group "" at the cluster scope'),
        ("DELETE", f"{NS}/secrets", 'secrets is forbidden: User "ann" cannot deletecollection resource "secrets" in API group "" in the namespace "default"'),
        ("PATCH", f"{WIDGETS}/w/status", 'widgets.example.test "w" is forbidden: User "ann" cannot patch resource "widgets/status" in API group "example.test" in the namespace "default"'),
        ("GET", "/api/v1/namespaces/x", 'namespaces "x" is forbidden: User "ann" cannot get resource "namespaces" in API group "" in the namespace "x"'),
        ("GET", "/metrics", 'forbidden: User "ann" cannot get path "/metrics"'),
    ],
)  # fmt: skip
async def test_forbidden_messages(session: ApiSession, method: str, path: str, text: str) -> None:
    plain, _, query = path.partition("?")
    reported = await session.acting_as("ann").ask(method, plain, **dict(p.split("=") for p in query.split("&") if p))
    assert (reported.code, reported.body["reason"], reported.body["message"]) == (403, "Forbidden", text)


async def test_a_role_gives_its_verbs_in_its_namespace_only(widgets: ApiSession) -> None:
    await grant(
        widgets, "ann", a_rule("get list create", "widgets", "example.test"), a_rule("get", "configmaps", names="one")
    )
    ann = widgets.acting_as("ann")
    assert (await ann.post(WIDGETS, a_widget())).code == 201
    assert (await ann.get(f"{WIDGETS}/one")).code == 200
    assert (await ann.get(f"{WIDGETS}/one/status")).code == 403
    assert (await ann.delete(f"{WIDGETS}/one")).code == 403
    assert (await ann.get("/apis/example.test/v1/widgets")).code == 403
    assert (await ann.get(f"{NS}/configmaps/one")).code == 404
    assert (await ann.get(f"{NS}/configmaps/two")).code == 403
    assert (await ann.get("/api/v1")).code == 200


async def test_rights_end_with_the_binding(session: ApiSession) -> None:
    await grant(session, {"kind": "Group", "name": "devs"}, a_rule("*", "*", "*"), cluster=True)
    dev = session.acting_as("dan", "devs")
    assert (await dev.get("/api/v1/nodes")).code == 200
    await session.delete(f"{RBAC}/clusterrolebindings/devs")
    assert (await dev.get("/api/v1/nodes")).code == 403


async def test_a_missing_role_is_named(session: ApiSession) -> None:
    await bind(session, "ann", "nowhere")
    reported = await session.acting_as("ann").get("/api/v1/nodes")
    assert reported.body["message"].endswith('RBAC: clusterrole.rbac.authorization.k8s.io "nowhere" not found')


async def test_service_accounts_have_no_rights_of_their_own(session: ApiSession) -> None:
    token = (await session.post(f"{NS}/serviceaccounts/default/token", {})).body["status"]["token"]
    robot = ApiSession(session.api, session.clock, token)
    assert (await robot.get(f"{NS}/pods")).code == 403
    await grant(session, {"kind": "ServiceAccount", "name": "default", "namespace": "default"}, a_rule("list", "pods"))
    assert (await robot.get(f"{NS}/pods")).code == 200


async def test_the_usual_roles(widgets: ApiSession) -> None:
    for role in ("view", "edit", "admin"):
        await bind(widgets, role, role, "default")
    viewer, editor, admin = (widgets.acting_as(role) for role in ("view", "edit", "admin"))
    assert (await viewer.get(f"{NS}/pods")).code == 200
    assert (await viewer.get(f"{NS}/secrets")).code == 403
    assert (await viewer.post(f"{NS}/configmaps", {"metadata": {"name": "c"}})).code == 403
    assert (await editor.post(f"{NS}/configmaps", {"metadata": {"name": "c"}})).code == 201
    assert (await editor.get(f"{RBAC}/namespaces/default/roles")).code == 403
    assert (await admin.get(f"{RBAC}/namespaces/default/roles")).code == 200
    assert (await admin.get("/api/v1/nodes")).code == 403
    assert (await viewer.get(WIDGETS)).code == 403
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [a_rule("get list watch", "widgets", "example.test")]
    await widgets.post(f"{RBAC}/clusterroles", {"metadata": {"name": "see-widgets", "labels": label}, "rules": rules})
    for someone in (viewer, editor, admin):
        await someone.until(WIDGETS, lambda reported: reported.code == 200)


def aggregating_role(name: str, of: str, *rules: dict[str, Any]) -> dict[str, Any]:
    """A role that holds the rules of those with that label."""
    selectors = [{"matchLabels": {"to": of}}]
    return {
        "metadata": {"name": name, "labels": {"to": name}},
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": [*rules],
    }


def test_chained_aggregated_roles_converge() -> None:
    given = {"metadata": {"name": "given", "labels": {"to": "a"}}, "rules": [a_rule("get", "pods")]}
    chain = [aggregating_role("z", "y"), aggregating_role("y", "x"), aggregating_role("x", "a"), given]
    assert aggregate_rules(chain) == aggregate_rules(chain[::-1]) == dict.fromkeys("xyz", given["rules"])


def test_mutually_aggregated_roles_converge() -> None:
    circle = [
        aggregating_role("one", "other", a_rule("get", "pods")),
        aggregating_role("other", "one", a_rule("get", "nodes")),
    ]
    found = aggregate_rules(circle)
    assert found["one"] == found["other"]
    assert aggregate_rules([role | {"rules": found[role["metadata"]["name"]]} for role in circle]) == found


async def test_default_roles_are_restored(session: ApiSession) -> None:
    await session.patch(f"{RBAC}/clusterroles/system:basic-user", {"rules": []})
    assert (await session.acting_as("ann").post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {})).code == 403
    await session.api.manager.cluster_roles.ensure_bootstrap()
    assert (await session.acting_as("ann").post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {})).code == 201


async def test_rules_removed_from_an_aggregated_role_are_not_restored_temporarily(session: ApiSession) -> None:
    """Its rules are those of the roles that feed it, and of these one may be taken away."""
    fed = {"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-edit": None}}}
    before = (await session.get(f"{RBAC}/clusterroles/edit")).body
    await session.patch(f"{RBAC}/clusterroles/system:aggregate-to-edit", fed)
    await session.until(f"{RBAC}/clusterroles/edit", lambda reported: reported.body["rules"] != before["rules"])
    await session.api.manager.cluster_roles.aggregate()
    cut = (await session.get(f"{RBAC}/clusterroles/edit")).body
    await session.api.manager.cluster_roles.ensure_bootstrap()
    assert (await session.get(f"{RBAC}/clusterroles/edit")).body == cut


async def test_nobody_grants_more_than_they_have(session: ApiSession) -> None:
    await grant(
        session,
        "ann",
        a_rule("create update", "roles rolebindings", "rbac.authorization.k8s.io"),
        a_rule("get", "pods"),
    )
    ann, path = session.acting_as("ann"), f"{RBAC}/namespaces/default/roles"
    assert (await ann.post(path, {"metadata": {"name": "less"}, "rules": [a_rule("get", "pods")]})).code == 201
    reported = await ann.post(path, {"metadata": {"name": "more"}, "rules": [a_rule("get list", "pods secrets")]})
    assert reported.code == 403
    assert reported.body["message"] == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting '
        'to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    body = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [{"kind": "User", "name": "ann"}]}
    assert (await ann.post(f"{RBAC}/namespaces/default/rolebindings", body)).code == 403
    await grant(
        session,
        {"kind": "Group", "name": "binders"},
        a_rule("bind", "clusterroles", "rbac.authorization.k8s.io", "edit"),
    )
    binder = session.acting_as("ann", "binders")
    assert (await binder.post(f"{RBAC}/namespaces/default/rolebindings", body)).code == 201


async def test_impersonation_is_a_right(session: ApiSession) -> None:
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    reported = await session.acting_as("zoe", "a", "b", impersonate_uid="7", impersonate_extra_why="x").post(who, {})
    expected = {"username": "zoe", "groups": ["a", "b", "system:authenticated"], "uid": "7", "extra": {"why": ["x"]}}
    assert reported.body["status"]["userInfo"] == expected
    robot = await session.acting_as("system:serviceaccount:default:bot").post(who, {})
    assert "system:serviceaccounts:default" in robot.body["status"]["userInfo"]["groups"]
    token = (await session.post(f"{NS}/serviceaccounts/default/token", {})).body["status"]["token"]
    account = ApiSession(session.api, session.clock, token)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    assert (await account.acting_as("zoe").post(who, {})).body["message"].startswith('users "zoe" is forbidden')
    await grant(session, subject, a_rule("impersonate", "users", names="zoe"), cluster=True)
    assert (await account.acting_as("zoe").post(who, {})).code == 201
    assert (await account.acting_as("zoe", "system:masters").post(who, {})).code == 403
    assert (await session.acting_as("", "a").get("/api")).code == 500


async def test_access_reviews_match_authorization(session: ApiSession) -> None:
    await grant(session, "ann", a_rule("get", "pods/log"), a_rule("list", "pods"))
    ann = session.acting_as("ann")

    async def can(verb: str, resource: str, subresource: str = "", namespace: str = "default") -> bool:
        asked = {"verb": verb, "resource": resource, "subresource": subresource, "namespace": namespace}
        own = await ann.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": asked}})
        spec = {"user": "ann", "groups": ["system:authenticated"], "resourceAttributes": asked}
        described = await session.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
        assert own.body["status"] == described.body["status"]
        return bool(own.body["status"]["allowed"])

    assert await can("list", "pods")
    assert await can("get", "pods", "log")
    assert not await can("get", "pods")
    assert not await can("list", "pods", namespace="")
    assert not await can("*", "*")
    rules = await ann.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in rules.body["status"]["resourceRules"]
    local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    asked = {"verb": "list", "resource": "pods", "namespace": "kube-system"}
    reported = await session.post(local, {"spec": {"user": "ann", "resourceAttributes": asked}})
    assert reported.code == 422


@pytest.mark.parametrize(
    ("plural", "parts", "fields"),
    [
        ("roles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, {"rules[0].verbs"}),
        ("roles", {"rules": [{"verbs": ["get"]}]}, {"rules[0].apiGroups", "rules[0].resources"}),
        ("roles", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]}, {"rules[0].nonResourceURLs"}),
        ("rolebindings", {"roleRef": {"kind": "Role", "name": ""}}, {"roleRef.name"}),
        (
            "rolebindings",
            {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "Thing", "name": "a"}]},
            {"subjects[0].kind"},
        ),
    ],
)
async def test_incomplete_roles_and_bindings(session: ApiSession, plural: str, parts: Any, fields: set[str]) -> None:
    reported = await session.post(f"{RBAC}/namespaces/default/{plural}", {"metadata": {"name": "x"}} | parts)
    assert (reported.code, set(reported.causes)) == (422, fields)
