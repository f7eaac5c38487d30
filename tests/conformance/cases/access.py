"""Who may do what: reviews, roles, impersonation; and admission webhooks' configurations."""

from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, W, config_map, widget

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io"
ALICE, BOB = "alice-token", "bob-token"


@case("P1", "SubjectReview should support SubjectReview API operations")
def who_am_i(session: ApiSession) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for token in (ALICE, BOB):
        reported = session.post(
            path, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, token=token, note=False
        )
        info = reported["status"]["userInfo"]
        session.note(token, [info["username"], info["groups"]])


def can(session: ApiSession, attributes: dict[str, str], token: str | None = None, want: bool = True) -> None:
    reported = session.post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
        token=token,
        note=False,
    )
    session.note(str(attributes), reported["status"]["allowed"])
    assert reported["status"]["allowed"] is want


@case("P1")
def an_administrator_can(session: ApiSession) -> None:
    can(session, {"verb": "delete", "resource": "pods", "namespace": session.ns})
    can(session, {"verb": "*", "resource": "*", "group": "*"})
    reported = session.post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}},
        note=False,
    )
    assert reported["status"]["allowed"]


@case("P1")
def review_refusals(session: ApiSession) -> None:
    session.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}}, want=422)
    session.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}}, want=422)


def forbidden(session: ApiSession, method: str, path: str, body: Any) -> None:
    """Alice has no rights here; the refusal names everything. Nothing but the refusal is compared."""
    session.ask(method, path, body, want=403, token=ALICE)


rows(
    "P1",
    "access",
    "forbidden",
    [
        ("get", "GET", "~configmaps/one", None),
        ("list", "GET", "~configmaps", None),
        ("create", "POST", "~configmaps", config_map()),
        ("update", "PUT", "~configmaps/one", config_map()),
        ("patch", "PATCH", "~configmaps/one", {}),
        ("delete", "DELETE", "~configmaps/one", None),
        ("delete a collection", "DELETE", "~configmaps", None),
        ("custom delete", "DELETE", f"{W}/one", None),
        ("custom status", "GET", f"{W}/one/status", None),
        ("cluster scope", "GET", "/api/v1/nodes", None),
        ("subresource", "GET", "~pods/one/log", None),
        ("path", "GET", "/metrics", None),
    ],
    forbidden,
)


def role(session: ApiSession, rules: list[dict[str, Any]], kind: str = "Role") -> None:
    """Binds a role with these rules to alice in the case's namespace."""
    path = f"~{RBAC}/v1/roles" if kind == "Role" else f"/apis/{RBAC}/v1/clusterroles"
    name = "one" if kind == "Role" else f"conformance-{session.case}"[:60]
    session.post(path, {"metadata": {"name": name}, "rules": rules}, note=False)
    binding = {
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "alice"}],
    }
    session.post(f"~{RBAC}/v1/rolebindings", binding, note=False)
    session.until("~configmaps", lambda reported: reported.code != 403, token=ALICE, note=False)


@case("P1")
def a_role_gives_rights(session: ApiSession) -> None:
    role(
        session,
        [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
            {"apiGroups": [GROUP], "resources": ["widgets/status"], "verbs": ["get"]},
        ],
    )
    session.post("~configmaps", config_map(), token=ALICE)
    session.get("~configmaps/one", token=ALICE)
    session.delete("~configmaps/one", token=ALICE, want=403)
    session.get("~secrets", token=ALICE, want=403)
    session.post(W, widget())
    session.get(f"{W}/one", token=ALICE, want=403)
    session.get(f"{W}/one/status", token=ALICE)
    session.get("/api/v1/namespaces/default/configmaps", token=ALICE, want=403)
    session.get("~configmaps", token=BOB, want=403)
    can(session, {"verb": "create", "resource": "configmaps", "namespace": session.ns}, ALICE)
    can(session, {"verb": "delete", "resource": "configmaps", "namespace": session.ns}, ALICE, want=False)


@case("P1")
def a_role_of_resource_names(session: ApiSession) -> None:
    role(
        session,
        [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "get"], "resourceNames": ["one"]},
        ],
    )
    session.post("~configmaps", config_map())
    session.post("~configmaps", config_map("two"))
    session.get("~configmaps/one", token=ALICE)
    session.get("~configmaps/two", token=ALICE, want=403)
    session.put("~configmaps/one", config_map(data={"a": "b"}), token=ALICE)


@case("P1")
def a_cluster_role_in_a_namespace(session: ApiSession) -> None:
    role(session, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], "ClusterRole")
    session.post("~configmaps", config_map(), token=ALICE)
    session.delete("~configmaps/one", token=ALICE)
    session.get("/api/v1/nodes", token=ALICE, want=403)


@case("P1")
def nobody_grants_what_he_has_not(session: ApiSession) -> None:
    role(
        session,
        [
            {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        ],
    )
    path = f"~{RBAC}/v1/roles"
    session.post(
        path,
        {"metadata": {"name": "less"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]},
        token=ALICE,
    )
    session.post(
        path,
        {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]},
        token=ALICE,
        want=403,
    )


@case("P1")
def impersonation(session: ApiSession) -> None:
    as_alice = {"impersonate-user": "alice"}
    session.get("~configmaps", headers=as_alice, want=403)
    reported = session.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {},
        headers=as_alice | {"impersonate-group": "special"},
        note=False,
    )
    session.note("who", [reported["status"]["userInfo"]["username"], reported["status"]["userInfo"]["groups"]])
    session.get("~configmaps", headers={"impersonate-user": "bob"}, token=ALICE, want=403)
    session.get("~configmaps", headers={"impersonate-group": "x"}, want=None)


@case("P1")
def subject_access_reviews(session: ApiSession) -> None:
    role(session, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
    attributes = {"verb": "list", "resource": "configmaps", "namespace": session.ns}
    for user, verb, allowed in (("alice", "list", True), ("alice", "delete", False), ("carol", "list", False)):
        reported = session.post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {"spec": {"user": user, "resourceAttributes": attributes | {"verb": verb}}},
            note=False,
        )
        assert reported["status"]["allowed"] is allowed
    reported = session.post(
        "~authorization.k8s.io/v1/localsubjectaccessreviews",
        {"spec": {"user": "alice", "resourceAttributes": attributes}, "metadata": {"namespace": session.ns}},
        note=False,
    )
    assert reported["status"]["allowed"]
    rules = session.post(
        f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": session.ns}}, token=ALICE, note=False
    )
    session.note("rules", [one for one in rules["status"]["resourceRules"] if one["resources"] == ["configmaps"]])


@case("P1")
def token_reviews(session: ApiSession) -> None:
    reported = session.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": ALICE}}, note=False)
    session.note("alice", [reported["status"]["authenticated"], reported["status"]["user"]["username"]])
    reported = session.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "wrong"}}, note=False)
    session.note("wrong", bool(reported["status"].get("authenticated")))
    assert not reported["status"].get("authenticated")


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOOK = {"name": "a.b.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [{"apiGroups": ["none.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}  # fmt: skip


def bad_hook(session: ApiSession, change: dict[str, Any]) -> None:
    session.post(HOOKS, {"metadata": {"name": "conformance-bad"}, "webhooks": [HOOK | change]}, want=422)


rows(
    "P2",
    "access",
    "webhook configuration refused",
    [
        ("no side effects", {"sideEffects": None}),
        ("unqualified name", {"name": "plain"}),
        ("no review versions", {"admissionReviewVersions": []}),
        ("http url", {"clientConfig": {"url": "http://127.0.0.1/x"}}),
        ("no client", {"clientConfig": {}}),
        ("unknown operation", {"rules": [HOOK["rules"][0] | {"operations": ["THINK"]}]}),  # type: ignore[index,operator]
        ("long timeout", {"timeoutSeconds": 60}),
    ],
    bad_hook,
)


@case("P0")
def webhook_configuration_without_webhooks(session: ApiSession) -> None:
    """Kopf begins so."""
    session.post(HOOKS, {"metadata": {"name": "conformance-empty"}})
    session.patch(f"{HOOKS}/conformance-empty", {"webhooks": [HOOK]})
    session.delete(f"{HOOKS}/conformance-empty")
