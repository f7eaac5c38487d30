"""The official Python client's typed calls, unchanged, against both servers."""

from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from tests.conformance.catalogue import case
from tests.conformance.normal import normal
from tests.conformance.talk import Talk
from tests.conformance.things import GROUP, deployment, pod, widget


def connect(talk: Talk) -> client.ApiClient:
    # Without proxies named, the client reads them from the environment, which pytest changes while cases run in threads.
    current = client.Configuration(proxy="", no_proxy="*")
    config.load_kube_config(talk.server.kubeconfig, client_configuration=current)
    return client.ApiClient(current)


def tell(talk: Talk, name: str, found: Any, api: client.ApiClient) -> None:
    """Records an answer as the JSON form of its model, without status (controllers write it)."""
    shown = api.sanitize_for_serialization(found)
    talk.note(
        name, {key: value for key, value in shown.items() if key != "status"} if isinstance(shown, dict) else shown
    )


@case("P1", "client: typed calls for core kinds")
def python_core(talk: Talk) -> None:
    with connect(talk) as api:
        core = client.CoreV1Api(api)
        made = core.create_namespaced_config_map(
            talk.ns, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one", labels={"a": "b"}), data={"k": "v"})
        )
        tell(talk, "created", made, api)
        made.data["k"] = "w"
        tell(talk, "replaced", core.replace_namespaced_config_map("one", talk.ns, made), api)
        tell(talk, "patched", core.patch_namespaced_config_map("one", talk.ns, {"data": {"l": "m"}}), api)
        tell(talk, "listed", core.list_namespaced_config_map(talk.ns, label_selector="a=b"), api)
        try:
            core.replace_namespaced_config_map("one", talk.ns, made)
        except ApiException as refused:
            talk.note("stale", [refused.status, refused.reason])
        tell(talk, "deleted", core.delete_namespaced_config_map("one", talk.ns), api)
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"})
        tell(talk, "secret", core.create_namespaced_secret(talk.ns, secret), api)
        tell(
            talk,
            "account",
            core.create_namespaced_service_account(talk.ns, client.V1ServiceAccount(metadata={"name": "x"})),
            api,
        )
        service = client.V1ServiceSpec(cluster_ip="None", ports=[client.V1ServicePort(port=80)], selector={"a": "b"})
        tell(
            talk,
            "service",
            core.create_namespaced_service(talk.ns, client.V1Service(metadata={"name": "x"}, spec=service)),
            api,
        )
        tell(talk, "namespace", core.read_namespace(talk.ns), api)
        talk.note("all", core.delete_collection_namespaced_config_map(talk.ns, label_selector="none").kind)


@case("P1", "client: typed calls for pods")
def python_pods(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    with connect(talk) as api:
        core = client.CoreV1Api(api)
        tell(talk, "created", core.create_namespaced_pod(talk.ns, pod()), api)
        found = core.patch_namespaced_pod_status("one", talk.ns, {"status": {"phase": "Running"}})
        talk.note("phase", found.status.phase)
        talk.note(
            "listed",
            [
                one.metadata.name
                for one in core.list_namespaced_pod(talk.ns, field_selector="status.phase=Running").items
            ],
        )
        gone = core.delete_namespaced_pod("one", talk.ns, grace_period_seconds=0)
        talk.note("deleted", gone.metadata.name)


@case("P1", "client: typed calls for workloads")
def python_workloads(talk: Talk) -> None:
    with connect(talk) as api:
        apps, batch = client.AppsV1Api(api), client.BatchV1Api(api)
        tell(talk, "deployment", apps.create_namespaced_deployment(talk.ns, deployment(paused=True)), api)
        scaled = apps.patch_namespaced_deployment_scale("one", talk.ns, {"spec": {"replicas": 0}})
        talk.note("scale", scaled.spec.replicas)
        tell(talk, "deleted", apps.delete_namespaced_deployment("one", talk.ns, propagation_policy="Background"), api)
        container = client.V1Container(name="c", image="i")
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
        job = client.V1Job(metadata={"name": "j"}, spec=client.V1JobSpec(suspend=True, template=template))
        made = batch.create_namespaced_job(talk.ns, job)
        talk.note("job", [made.spec.parallelism, made.spec.completions, made.spec.backoff_limit, made.spec.suspend])


@case("P1", "client: leases, roles, budgets, reviews")
def python_other_groups(talk: Talk) -> None:
    with connect(talk) as api:
        spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15)
        lease = client.CoordinationV1Api(api).create_namespaced_lease(
            talk.ns, client.V1Lease(metadata={"name": "x"}, spec=spec)
        )
        tell(talk, "lease", lease, api)
        rule = client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["get"])
        role = client.V1Role(metadata={"name": "x"}, rules=[rule])
        tell(talk, "role", client.RbacAuthorizationV1Api(api).create_namespaced_role(talk.ns, role), api)
        spec = client.V1PodDisruptionBudgetSpec(
            min_available=1, selector=client.V1LabelSelector(match_labels={"a": "b"})
        )
        budget = client.V1PodDisruptionBudget(metadata={"name": "x"}, spec=spec)
        made = client.PolicyV1Api(api).create_namespaced_pod_disruption_budget(talk.ns, budget)
        talk.note("budget", made.spec.min_available)
        request = client.V1ResourceAttributes(verb="get", resource="pods", namespace=talk.ns)
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=request)
        review = client.V1SelfSubjectAccessReview(spec=spec)
        answer = client.AuthorizationV1Api(api).create_self_subject_access_review(review)
        assert answer.status.allowed
        talk.note("version", client.VersionApi(api).get_code().minor)
        talk.note("groups", GROUP in [one.name for one in client.ApisApi(api).get_api_versions().groups])
        talk.note(
            "definition", client.ApiextensionsV1Api(api).read_custom_resource_definition(f"widgets.{GROUP}").spec.scope
        )


@case("P1", "client: custom objects and watches")
def python_custom_objects(talk: Talk) -> None:
    where = (GROUP, "v1", talk.ns, "widgets")
    with connect(talk) as api:
        customs = client.CustomObjectsApi(api)
        tell(talk, "created", customs.create_namespaced_custom_object(*where, widget()), api)
        tell(talk, "patched", customs.patch_namespaced_custom_object(*where, "one", {"spec": {"size": 4}}), api)
        talk.note(
            "status", customs.patch_namespaced_custom_object_status(*where, "one", {"status": {"a": 1}})["status"]
        )
        talk.note("scale", customs.get_namespaced_custom_object_scale(*where, "one")["spec"])
        events = []
        watching = watch.Watch()
        for event in watching.stream(customs.list_namespaced_custom_object, *where, timeout_seconds=5):
            events.append([event["type"], normal(event["object"])])
            if len(events) == 1:
                customs.delete_namespaced_custom_object(*where, "one")
            else:
                watching.stop()
        talk.note("events", events)
        try:
            customs.create_namespaced_custom_object(*where, widget(spec={"size": 1000}))
        except ApiException as refused:
            talk.note("refused", [refused.status, refused.reason])
