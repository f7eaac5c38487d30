"""Health, version, discovery in both forms, OpenAPI, and who may ask at all."""

from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import CRDS, GROUP, crd, of_spec, version, widget

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList,application/json"


def health(session: ApiSession, path: str) -> None:
    reported = session.get(path, note=False)
    assert reported.body == "ok"
    session.note(path, reported.body)


rows(
    "P0",
    "discovery",
    "health",
    [(p, p) for p in ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/ping")],
    health,
)


@case("P0", "server version should find the server version")
def server_version(session: ApiSession) -> None:
    for path in ("/version", "/version/"):
        reported = session.get(path, note=False)
        assert reported["major"].isdigit()
        assert reported["minor"].isdigit()
        session.note(
            path,
            [
                reported["major"],
                reported["minor"],
                sorted(key for key in reported.body if key in ("gitVersion", "platform")),
            ],
        )


def forbidden_to_all(session: ApiSession, method: str, path: str, code: int, token: str) -> None:
    reported = session.ask(method, path, want=code, token=token)
    assert reported["kind"] == "Status"


rows(
    "P0",
    "discovery",
    "access",
    [
        ("unknown token", "GET", "/api/v1/namespaces", 401, "wrong"),
        ("unknown token on health", "GET", "/healthz/no-such-part", 401, "wrong"),
        ("anonymous list", "GET", "/api/v1/namespaces/default/configmaps", 403, ""),
        ("anonymous get", "GET", "/api/v1/namespaces/default/configmaps/one", 403, ""),
        ("anonymous list of all", "GET", "/api/v1/configmaps", 403, ""),
        ("anonymous get of a cluster object", "GET", "/api/v1/nodes/one", 403, ""),
        ("anonymous list in a group", "GET", "/apis/apps/v1/namespaces/default/deployments", 403, ""),
        ("anonymous discovery", "GET", "/apis", 403, ""),
        ("anonymous custom resource", "GET", f"/apis/{GROUP}/v1/namespaces/default/widgets", 403, ""),
        ("anonymous delete", "DELETE", "/api/v1/namespaces/default/configmaps/one", 403, ""),
        ("anonymous subresource", "GET", "/api/v1/namespaces/default/pods/one/status", 403, ""),
    ],
    forbidden_to_all,
)  # fmt: skip


@case("P0")
def anonymous_health(session: ApiSession) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        session.get(path, token="")
    assert session.get("/version", token="", note=False)["major"] == "1"


@case("P0")
def api_versions(session: ApiSession) -> None:
    reported = session.get("/api", note=False)
    assert reported["kind"] == "APIVersions"
    session.note("versions", [reported["versions"], sorted(reported.body)])


@case("P0", "Discovery should validate PreferredVersion for each APIGroup")
def api_groups(session: ApiSession) -> None:
    reported = session.get("/apis", note=False)
    assert reported["kind"] == "APIGroupList"
    for group in reported["groups"]:
        assert group["preferredVersion"] in group["versions"]
        one = session.get(f"/apis/{group['name']}", note=False)
        assert one["preferredVersion"] == group["preferredVersion"]
        assert one["kind"] == "APIGroup"
    session.note("ours", next(group for group in reported["groups"] if group["name"] == GROUP))
    session.note("apps", next(group for group in reported["groups"] if group["name"] == "apps"))


def core_resources(session: ApiSession, path: str, names: tuple[str, ...]) -> None:
    reported = session.get(path, note=False)
    assert reported["kind"] == "APIResourceList"
    found = {one["name"]: one for one in reported["resources"]}
    for name in names:
        entry = dict(found[name])
        entry.pop("storageVersionHash", None)
        entry["verbs"] = sorted(entry["verbs"])
        entry["categories"] = sorted(entry.get("categories", []))
        session.note(name, entry)


CORE = "namespaces namespaces/finalize namespaces/status configmaps secrets serviceaccounts serviceaccounts/token events nodes nodes/status pods pods/status pods/binding pods/eviction pods/log services services/status persistentvolumes persistentvolumeclaims replicationcontrollers replicationcontrollers/scale"
APPS = "deployments deployments/status deployments/scale replicasets replicasets/status replicasets/scale statefulsets statefulsets/scale daemonsets daemonsets/status"
OTHERS = {
    "batch/v1": "jobs jobs/status cronjobs cronjobs/status",
    "coordination.k8s.io/v1": "leases",
    "events.k8s.io/v1": "events",
    "rbac.authorization.k8s.io/v1": "roles rolebindings clusterroles clusterrolebindings",
    "scheduling.k8s.io/v1": "priorityclasses",
    "policy/v1": "poddisruptionbudgets poddisruptionbudgets/status",
    "networking.k8s.io/v1": "ingresses ingresses/status networkpolicies",
    "storage.k8s.io/v1": "storageclasses csinodes csidrivers volumeattachments volumeattachments/status csistoragecapacities",
    "autoscaling/v2": "horizontalpodautoscalers horizontalpodautoscalers/status",
    "discovery.k8s.io/v1": "endpointslices",
    "admissionregistration.k8s.io/v1": "validatingwebhookconfigurations mutatingwebhookconfigurations",
    "apiextensions.k8s.io/v1": "customresourcedefinitions customresourcedefinitions/status",
    "authentication.k8s.io/v1": "tokenreviews selfsubjectreviews",
    "authorization.k8s.io/v1": "selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews localsubjectaccessreviews",
    f"{GROUP}/v1": "widgets widgets/status widgets/scale gadgets looses",
    f"{GROUP}/v1beta1": "gadgets",
}
rows("P0", "discovery", "resources", [("core", "/api/v1", tuple(CORE.split())), ("apps", "/apis/apps/v1", tuple(APPS.split()))],
     core_resources)  # fmt: skip
rows(
    "P1",
    "discovery",
    "resources of",
    [(group, f"/apis/{group}", tuple(names.split())) for group, names in OTHERS.items()],
    core_resources,
)


def aggregated(session: ApiSession, path: str, form: str) -> None:
    reported = session.get(path, accept=AGGREGATED.format(form), note=False)
    assert reported["kind"] == "APIGroupDiscoveryList"
    assert reported["apiVersion"] == f"apidiscovery.k8s.io/{form}"
    session.note("media", sorted(part.strip() for part in reported.headers["content-type"].split(";")))
    wanted = {"": ("pods", "configmaps"), GROUP: ("widgets", "gadgets", "looses"), "apps": ("deployments",)}
    for group in reported["items"]:
        name = group["metadata"].get("name", "")
        for served in group["versions"]:
            for one in served["resources"]:
                if one["resource"] in wanted.get(name, ()):
                    one["verbs"] = sorted(one["verbs"])
                    one["subresources"] = {
                        sub["subresource"]: sub | {"verbs": sorted(sub["verbs"])} for sub in one.get("subresources", [])
                    }
                    session.note(f"{name}/{served['version']} {one['resource']}", one)


rows(
    "P0",
    "discovery",
    "aggregated discovery",
    [(f"{path} {form}", path, form) for path in ("/api", "/apis") for form in ("v2",)],
    aggregated,
)


@case("P1", "AggregatedDiscovery should support raw aggregated discovery endpoint Accept headers")
def aggregated_falls_back(session: ApiSession) -> None:
    reported = session.get(
        "/apis",
        accept="application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
        note=False,
    )
    assert reported["kind"] == "APIGroupList"
    session.get("/apis", accept="application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList", want=406)


@case("P1")
def aggregated_discovery_etag(session: ApiSession) -> None:
    accept = AGGREGATED.format("v2")
    tag = session.get("/api", accept=accept, note=False).headers["etag"]
    reported = session.ask("GET", "/api", accept=accept, headers={"if-none-match": tag}, want=304)
    assert reported.body == ""


def nothing_here(session: ApiSession, method: str, path: str, code: int) -> None:
    reported = session.ask(
        method,
        path,
        widget() if method in ("POST", "PUT") and GROUP in path else {} if method in ("POST", "PUT") else None,
        want=code,
    )
    session.note("what", str(reported.body)[:40])


rows(
    "P0",
    "discovery",
    "no such",
    [
        ("path", "GET", "/no/such/path", 404),
        ("group", "GET", "/apis/no.such.group", 404),
        ("version", "GET", "/apis/apps/v9", 404),
        ("core version", "GET", "/api/v9", 404),
        ("resource", "GET", "/api/v1/nothings", 404),
        ("resource in a namespace", "GET", "/api/v1/namespaces/default/nothings/one", 404),
        ("resource of a custom group", "GET", f"/apis/{GROUP}/v1/nothings", 404),
        ("version of a custom group", "GET", f"/apis/{GROUP}/v9/widgets", 404),
        ("subresource", "GET", "/api/v1/namespaces/default/configmaps/one/status", 404),
        ("subresource of a custom resource", "GET", f"/apis/{GROUP}/v1/namespaces/default/looses/one/status", 404),
        ("namespaced resource at cluster scope", "GET", "/api/v1/pods/one", 404),
        ("cluster resource in a namespace", "GET", "/api/v1/namespaces/default/nodes", 404),
        ("custom namespaced resource at cluster scope", "GET", f"/apis/{GROUP}/v1/widgets/one", 404),
        ("custom cluster resource in a namespace", "GET", f"/apis/{GROUP}/v1/namespaces/default/gadgets", 404),
    ],
    nothing_here,
)
rows(
    "P1",
    "discovery",
    "method not allowed",
    [
        ("post to a name", "POST", "/api/v1/namespaces/default/configmaps/one", 405),
        ("put to a collection", "PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("patch a collection", "PATCH", "/api/v1/namespaces/default/configmaps", 405),
        ("put to a custom collection", "PUT", f"/apis/{GROUP}/v1/namespaces/default/widgets", 400),
        ("delete all namespaces", "DELETE", "/api/v1/namespaces", 405),
        ("get a review", "GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("post to a list of all namespaces", "POST", "/api/v1/configmaps", 405),
        ("delete a list of all namespaces", "DELETE", "/api/v1/configmaps", 405),
    ],
    nothing_here,
)


def openapi_paths(session: ApiSession) -> dict[str, Any]:
    """The index of OpenAPI v3 once it names the suite's own group: a real server publishes a definition a little late."""
    session.until("/openapi/v3", lambda reported: f"apis/{GROUP}/v1" in reported["paths"], note=False)
    found: dict[str, Any] = session.get("/openapi/v3", note=False)["paths"]
    return found


@case("P0", "OpenAPIV3 should round trip OpenAPI V3 for all built-in group versions")
def openapi_v3_index(session: ApiSession) -> None:
    paths = openapi_paths(session)
    for wanted in ("api/v1", "apis/apps/v1", f"apis/{GROUP}/v1", "apis/batch/v1", "version"):
        found = paths.get(wanted, {}).get("serverRelativeURL", "")
        session.note(wanted, found.split("?")[0])
        if wanted != "version":
            assert "hash=" in found
            assert session.get(found, note=False)["openapi"].startswith("3.")


def openapi_operation(session: ApiSession, document: str, path: str, method: str) -> None:
    openapi_paths(session)
    operation = session.get(document, note=False)["paths"][path][method]
    session.note("action", operation.get("x-kubernetes-action"))
    session.note("gvk", operation.get("x-kubernetes-group-version-kind"))
    session.note("parameters", sorted(one["name"] for one in operation.get("parameters", [])))
    bodies = operation.get("requestBody", {}).get("content", {})
    session.note("bodies", sorted(bodies))


OPERATIONS = [
    ("configmap create", "/openapi/v3/api/v1", "/api/v1/namespaces/{namespace}/configmaps", "post"),
    ("namespace patch", "/openapi/v3/api/v1", "/api/v1/namespaces/{name}", "patch"),
    (
        "deployment patch",
        "/openapi/v3/apis/apps/v1",
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
        "patch",
    ),
    (
        "widget patch",
        f"/openapi/v3/apis/{GROUP}/v1",
        f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets/{{name}}",
        "patch",
    ),
    ("widget create", f"/openapi/v3/apis/{GROUP}/v1", f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets", "post"),
    ("widget list", f"/openapi/v3/apis/{GROUP}/v1", f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets", "get"),
]
rows("P0", "discovery", "openapi v3 operation", OPERATIONS, openapi_operation)


@case("P0", "CustomResourcePublishOpenAPI works for CRD with validation schema")
def openapi_v3_schema_of_a_definition(session: ApiSession) -> None:
    openapi_paths(session)
    schemas = session.get(f"/openapi/v3/apis/{GROUP}/v1", note=False)["components"]["schemas"]
    name = next(name for name in schemas if name.endswith(".Widget"))
    session.note("name", name)
    schema = schemas[name]
    session.note("gvk", schema["x-kubernetes-group-version-kind"])
    session.note("spec", schema["properties"]["spec"])
    session.note("top", sorted(schema["properties"]))


@case("P1", "CustomResourcePublishOpenAPI works for CRD without validation schema")
def openapi_v3_schema_of_a_free_definition(session: ApiSession) -> None:
    openapi_paths(session)
    schemas = session.get(f"/openapi/v3/apis/{GROUP}/v1", note=False)["components"]["schemas"]
    session.note("schema", {k: v for k, v in schemas["test.conformance.v1.Loose"].items() if k != "properties"})


@case("P1")
def openapi_v3_patch_keys_of_built_ins(session: ApiSession) -> None:
    """kubectl looks for list types and merge keys here before it patches."""
    schemas = session.get("/openapi/v3/api/v1", note=False)["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    keys = (
        "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "type",
    )
    for name in ("containers", "volumes", "tolerations", "nodeSelector"):
        session.note(name, {key: spec[name][key] for key in keys if key in spec[name]})


@case("P2")
def openapi_v2_names_the_kinds(session: ApiSession) -> None:
    reported = session.get("/openapi/v2", note=False)
    assert reported["swagger"] == "2.0"
    session.note("a pod", "io.k8s.api.core.v1.Pod" in reported["definitions"])


@case("P1", "CustomResourcePublishOpenAPI removes definition from spec when one version gets changed to not be served")
def openapi_and_discovery_follow_served(session: ApiSession) -> None:
    schema = of_spec({"type": "object", "properties": {"a": {"type": "string"}}})
    body = crd(
        "fleetings", [version("v1", schema), version("v2", schema, storage=False)], group="served.conformance.test"
    )
    name = body["metadata"]["name"]
    session.post(CRDS, body, note=False)
    group = "/apis/served.conformance.test"
    session.until(f"{group}/v2/fleetings", lambda reported: reported.code == 200)
    session.until("/openapi/v3", lambda reported: "apis/served.conformance.test/v2" in reported["paths"], note=False)
    body["spec"]["versions"][1]["served"] = False
    session.patch(f"{CRDS}/{name}", {"spec": {"versions": body["spec"]["versions"]}}, note=False)
    session.until(f"{group}/v2/fleetings", lambda reported: reported.code == 404)
    session.until(group, lambda reported: len(reported["versions"]) == 1)
    session.delete(f"{CRDS}/{name}", note=False)
    session.until_gone(f"{group}/v1/fleetings")
    session.until_gone(group)


def root_paths(session: ApiSession) -> list[Any]:
    return [
        path
        for path in session.get("/", note=False)["paths"]
        if "/apis/apps" in path or path in ("/api", "/api/v1", "/apis")
    ]


@case("P2")
def root_lists_paths(session: ApiSession) -> None:
    session.note("paths", root_paths(session))


@case(
    "P1",
    "Servers with support for Table transformation should return a 406 for a backend which does not implement metadata",
)
def table_of_a_review_is_refused(session: ApiSession) -> None:
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    session.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, want=406, accept=accept)
