"""The official Python client's typed calls, unchanged, against both servers."""

from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case
from tests.conformance.normal import normal
from tests.conformance.things import GROUP, deployment, pod, widget


def connect(session: ApiSession) -> client.ApiClient:
    # Without proxies named, the client reads them from the environment, which pytest changes while cases run in threads.
    current = client.Configuration(proxy="", no_proxy="*")
    config.load_kube_config(session.server.kubeconfig, client_configuration=current)
    return client.ApiClient(current)


def tell(session: ApiSession, name: str, found: Any, api: client.ApiClient) -> None:
    """Records an answer as the JSON form of its model, without status (controllers write it)."""
    shown = api.sanitize_for_serialization(found)
    session.note(
        name, {key: value for key, value in shown.items() if key != "status"} if isinstance(shown, dict) else shown
    )


@case("P1", "client: typed calls for core kinds")
def python_core(session: ApiSession) -> None:
    with connect(session) as api:
        core = client.CoreV1Api(api)
        made = core.create_namespaced_config_map(
            session.ns, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one", labels={"a": "b"}), data={"k": "v"})
        )
        tell(session, "created", made, api)
        made.data["k"] = "w"
        tell(session, "replaced", core.replace_namespaced_config_map("one", session.ns, made), api)
        tell(session, "patched", core.patch_namespaced_config_map("one", session.ns, {"data": {"l": "m"}}), api)
        tell(session, "listed", core.list_namespaced_config_map(session.ns, label_selector="a=b"), api)
        try:
            core.replace_namespaced_config_map("one", session.ns, made)
        except ApiException as refused:
            session.note("stale", [refused.status, refused.reason])
        tell(session, "deleted", core.delete_namespaced_config_map("one", session.ns), api)
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"})
        tell(session, "secret", core.create_namespaced_secret(session.ns, secret), api)
        tell(
            session,
            "account",
            core.create_namespaced_service_account(session.ns, client.V1ServiceAccount(metadata={"name": "x"})),
            api,
        )
        service = client.V1ServiceSpec(cluster_ip="None", ports=[client.V1ServicePort(port=80)], selector={"a": "b"})
        tell(
            session,
            "service",
            core.create_namespaced_service(session.ns, client.V1Service(metadata={"name": "x"}, spec=service)),
            api,
        )
        tell(session, "namespace", core.read_namespace(session.ns), api)
        session.note("all", core.delete_collection_namespaced_config_map(session.ns, label_selector="none").kind)


@case("P1", "client: typed calls for pods")
def python_pods(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    with connect(session) as api:
        core = client.CoreV1Api(api)
        tell(session, "created", core.create_namespaced_pod(session.ns, pod()), api)
        found = core.patch_namespaced_pod_status("one", session.ns, {"status": {"phase": "Running"}})
        session.note("phase", found.status.phase)
        session.note(
            "listed",
            [
                one.metadata.name
                for one in core.list_namespaced_pod(session.ns, field_selector="status.phase=Running").items
            ],
        )
        gone = core.delete_namespaced_pod("one", session.ns, grace_period_seconds=0)
        session.note("deleted", gone.metadata.name)


@case("P1", "client: typed calls for workloads")
def python_workloads(session: ApiSession) -> None:
    with connect(session) as api:
        apps, batch = client.AppsV1Api(api), client.BatchV1Api(api)
        tell(session, "deployment", apps.create_namespaced_deployment(session.ns, deployment(paused=True)), api)
        scaled = apps.patch_namespaced_deployment_scale("one", session.ns, {"spec": {"replicas": 0}})
        session.note("scale", scaled.spec.replicas)
        tell(
            session,
            "deleted",
            apps.delete_namespaced_deployment("one", session.ns, propagation_policy="Background"),
            api,
        )
        container = client.V1Container(name="c", image="i")
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
        job = client.V1Job(metadata={"name": "j"}, spec=client.V1JobSpec(suspend=True, template=template))
        made = batch.create_namespaced_job(session.ns, job)
        session.note("job", [made.spec.parallelism, made.spec.completions, made.spec.backoff_limit, made.spec.suspend])


@case("P1", "client: leases, roles, budgets, reviews")
def python_other_groups(session: ApiSession) -> None:
    with connect(session) as api:
        spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15)
        lease = client.CoordinationV1Api(api).create_namespaced_lease(
            session.ns, client.V1Lease(metadata={"name": "x"}, spec=spec)
        )
        tell(session, "lease", lease, api)
        rule = client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["get"])
        role = client.V1Role(metadata={"name": "x"}, rules=[rule])
        tell(session, "role", client.RbacAuthorizationV1Api(api).create_namespaced_role(session.ns, role), api)
        spec = client.V1PodDisruptionBudgetSpec(
            min_available=1, selector=client.V1LabelSelector(match_labels={"a": "b"})
        )
        budget = client.V1PodDisruptionBudget(metadata={"name": "x"}, spec=spec)
        made = client.PolicyV1Api(api).create_namespaced_pod_disruption_budget(session.ns, budget)
        session.note("budget", made.spec.min_available)
        request = client.V1ResourceAttributes(verb="get", resource="pods", namespace=session.ns)
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=request)
        review = client.V1SelfSubjectAccessReview(spec=spec)
        answer = client.AuthorizationV1Api(api).create_self_subject_access_review(review)
        assert answer.status.allowed
        session.note("version", client.VersionApi(api).get_code().minor)
        session.note("groups", GROUP in [one.name for one in client.ApisApi(api).get_api_versions().groups])
        session.note(
            "definition", client.ApiextensionsV1Api(api).read_custom_resource_definition(f"widgets.{GROUP}").spec.scope
        )


@case("P1", "client: custom objects and watches")
def python_custom_objects(session: ApiSession) -> None:
    where = (GROUP, "v1", session.ns, "widgets")
    with connect(session) as api:
        customs = client.CustomObjectsApi(api)
        tell(session, "created", customs.create_namespaced_custom_object(*where, widget()), api)
        tell(session, "patched", customs.patch_namespaced_custom_object(*where, "one", {"spec": {"size": 4}}), api)
        session.note(
            "status", customs.patch_namespaced_custom_object_status(*where, "one", {"status": {"a": 1}})["status"]
        )
        session.note("scale", customs.get_namespaced_custom_object_scale(*where, "one")["spec"])
        events = []
        watching = watch.Watch()
        for event in watching.stream(customs.list_namespaced_custom_object, *where, timeout_seconds=5):
            events.append([event["type"], normal(event["object"])])
            if len(events) == 1:
                customs.delete_namespaced_custom_object(*where, "one")
            else:
                watching.stop()
        session.note("events", events)
        try:
            customs.create_namespaced_custom_object(*where, widget(spec={"size": 1000}))
        except ApiException as refused:
            session.note("refused", [refused.status, refused.reason])
