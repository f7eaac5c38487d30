"""Who may do what: reviews, roles, impersonation; and admission webhooks' configurations."""

from typing import Any

from tests.conformance.catalogue import case, rows
from tests.conformance.talk import Talk
from tests.conformance.things import GROUP, W, config_map, widget

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io"
ALICE, BOB = "alice-token", "bob-token"


@case("P1", "SubjectReview should support SubjectReview API operations")
def who_am_i(talk: Talk) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for token in (ALICE, BOB):
        reported = talk.post(
            path, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, token=token, note=False
        )
        info = reported["status"]["userInfo"]
        talk.note(token, [info["username"], info["groups"]])


def can(talk: Talk, attributes: dict[str, str], token: str | None = None, want: bool = True) -> None:
    reported = talk.post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
        token=token,
        note=False,
    )
    talk.note(str(attributes), reported["status"]["allowed"])
    assert reported["status"]["allowed"] is want


@case("P1")
def an_administrator_can(talk: Talk) -> None:
    can(talk, {"verb": "delete", "resource": "pods", "namespace": talk.ns})
    can(talk, {"verb": "*", "resource": "*", "group": "*"})
    reported = talk.post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}},
        note=False,
    )
    assert reported["status"]["allowed"]


@case("P1")
def review_refusals(talk: Talk) -> None:
    talk.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}}, want=422)
    talk.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}}, want=422)


def forbidden(talk: Talk, method: str, path: str, body: Any) -> None:
    """Alice has no rights here; the refusal names everything. Nothing but the refusal is compared."""
    talk.ask(method, path, body, want=403, token=ALICE)


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


def role(talk: Talk, rules: list[dict[str, Any]], kind: str = "Role") -> None:
    """Binds a role with these rules to alice in the case's namespace."""
    path = f"~{RBAC}/v1/roles" if kind == "Role" else f"/apis/{RBAC}/v1/clusterroles"
    name = "one" if kind == "Role" else f"conformance-{talk.case}"[:60]
    talk.post(path, {"metadata": {"name": name}, "rules": rules}, note=False)
    binding = {
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "alice"}],
    }
    talk.post(f"~{RBAC}/v1/rolebindings", binding, note=False)
    talk.until("~configmaps", lambda reported: reported.code != 403, token=ALICE, note=False)


@case("P1")
def a_role_gives_rights(talk: Talk) -> None:
    role(
        talk,
        [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
            {"apiGroups": [GROUP], "resources": ["widgets/status"], "verbs": ["get"]},
        ],
    )
    talk.post("~configmaps", config_map(), token=ALICE)
    talk.get("~configmaps/one", token=ALICE)
    talk.delete("~configmaps/one", token=ALICE, want=403)
    talk.get("~secrets", token=ALICE, want=403)
    talk.post(W, widget())
    talk.get(f"{W}/one", token=ALICE, want=403)
    talk.get(f"{W}/one/status", token=ALICE)
    talk.get("/api/v1/namespaces/default/configmaps", token=ALICE, want=403)
    talk.get("~configmaps", token=BOB, want=403)
    can(talk, {"verb": "create", "resource": "configmaps", "namespace": talk.ns}, ALICE)
    can(talk, {"verb": "delete", "resource": "configmaps", "namespace": talk.ns}, ALICE, want=False)


@case("P1")
def a_role_of_resource_names(talk: Talk) -> None:
    role(
        talk,
        [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "get"], "resourceNames": ["one"]},
        ],
    )
    talk.post("~configmaps", config_map())
    talk.post("~configmaps", config_map("two"))
    talk.get("~configmaps/one", token=ALICE)
    talk.get("~configmaps/two", token=ALICE, want=403)
    talk.put("~configmaps/one", config_map(data={"a": "b"}), token=ALICE)


@case("P1")
def a_cluster_role_in_a_namespace(talk: Talk) -> None:
    role(talk, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], "ClusterRole")
    talk.post("~configmaps", config_map(), token=ALICE)
    talk.delete("~configmaps/one", token=ALICE)
    talk.get("/api/v1/nodes", token=ALICE, want=403)


@case("P1")
def nobody_grants_what_he_has_not(talk: Talk) -> None:
    role(
        talk,
        [
            {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        ],
    )
    path = f"~{RBAC}/v1/roles"
    talk.post(
        path,
        {"metadata": {"name": "less"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]},
        token=ALICE,
    )
    talk.post(
        path,
        {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]},
        token=ALICE,
        want=403,
    )


@case("P1")
def impersonation(talk: Talk) -> None:
    as_alice = {"impersonate-user": "alice"}
    talk.get("~configmaps", headers=as_alice, want=403)
    reported = talk.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {},
        headers=as_alice | {"impersonate-group": "special"},
        note=False,
    )
    talk.note("who", [reported["status"]["userInfo"]["username"], reported["status"]["userInfo"]["groups"]])
    talk.get("~configmaps", headers={"impersonate-user": "bob"}, token=ALICE, want=403)
    talk.get("~configmaps", headers={"impersonate-group": "x"}, want=None)


@case("P1")
def subject_access_reviews(talk: Talk) -> None:
    role(talk, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
    attributes = {"verb": "list", "resource": "configmaps", "namespace": talk.ns}
    for user, verb, allowed in (("alice", "list", True), ("alice", "delete", False), ("carol", "list", False)):
        reported = talk.post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {"spec": {"user": user, "resourceAttributes": attributes | {"verb": verb}}},
            note=False,
        )
        assert reported["status"]["allowed"] is allowed
    reported = talk.post(
        "~authorization.k8s.io/v1/localsubjectaccessreviews",
        {"spec": {"user": "alice", "resourceAttributes": attributes}, "metadata": {"namespace": talk.ns}},
        note=False,
    )
    assert reported["status"]["allowed"]
    rules = talk.post(
        f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": talk.ns}}, token=ALICE, note=False
    )
    talk.note("rules", [one for one in rules["status"]["resourceRules"] if one["resources"] == ["configmaps"]])


@case("P1")
def token_reviews(talk: Talk) -> None:
    reported = talk.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": ALICE}}, note=False)
    talk.note("alice", [reported["status"]["authenticated"], reported["status"]["user"]["username"]])
    reported = talk.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "wrong"}}, note=False)
    talk.note("wrong", bool(reported["status"].get("authenticated")))
    assert not reported["status"].get("authenticated")


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOOK = {"name": "a.b.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [{"apiGroups": ["none.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}  # fmt: skip


def bad_hook(talk: Talk, change: dict[str, Any]) -> None:
    talk.post(HOOKS, {"metadata": {"name": "conformance-bad"}, "webhooks": [HOOK | change]}, want=422)


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
def webhook_configuration_without_webhooks(talk: Talk) -> None:
    """Kopf begins so."""
    talk.post(HOOKS, {"metadata": {"name": "conformance-empty"}})
    talk.patch(f"{HOOKS}/conformance-empty", {"webhooks": [HOOK]})
    talk.delete(f"{HOOKS}/conformance-empty")
