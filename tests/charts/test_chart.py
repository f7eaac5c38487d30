"""The rendered chart says the same as the catalogue and the settings classes, and its pods may do only their work."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.catalogue import BY_NAME, PROCESSES, Process
from tests.charts.rendered import CHART, VALUE_SETS, VALUES, component, helm, objects, of_kind, pods, template
from tests.upkeep.printed import settings_class

pytestmark = pytest.mark.usefixtures("helm_here")

everywhere = pytest.mark.parametrize("values", VALUE_SETS)


def workloads(values: str) -> dict[str, dict[str, Any]]:
    """Deployments and StatefulSets of the processes, by process."""
    found = of_kind(values, "Deployment", "StatefulSet")
    return {component(each): each for each in found if component(each) in BY_NAME}


def container(workload: dict[str, Any]) -> dict[str, Any]:
    current: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return current


def environment(values: str, process: str) -> dict[str, str]:
    """What the process finds in its environment; what comes from a Secret is `secret/key`."""
    current = container(workloads(values)[process])
    found = {}
    for source in current.get("envFrom", []):
        name = source["configMapRef"]["name"]
        found |= next(each["data"] for each in of_kind(values, "ConfigMap") if each["metadata"]["name"] == name)
    for entry in current["env"]:
        if "value" in entry:
            found[entry["name"]] = entry["value"]
        else:
            reference = entry["valueFrom"]["secretKeyRef"]
            found[entry["name"]] = f"{reference['name']}/{reference['key']}"
    return found


def test_the_linter_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "--kube-version", "1.33.0")


@pytest.mark.parametrize(("values", "absent"), [("default", {"kube"}), ("postgres", {"kube"}), ("everything", set())])
def test_a_workload_a_service_and_an_account_for_each_process(values: str, absent: set[str]) -> None:
    wanted = set(BY_NAME) - absent
    assert set(workloads(values)) == wanted
    for kind in ("Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"):
        assert {component(each) for each in of_kind(values, kind)} - {"postgres"} == wanted, kind


def test_the_minimal_set_is_the_control_plane_alone() -> None:
    assert set(workloads("minimal")) == {"resource", "link", "compute", "agents"}
    assert not of_kind("minimal", "PodDisruptionBudget", "NetworkPolicy", "ClusterRole", "Role")


@everywhere
@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_a_process_gets_its_module_port_neighbours_and_no_setting_it_does_not_know(
    values: str, process: Process
) -> None:
    if process.name not in workloads(values):
        return
    current = container(workloads(values)[process.name])
    assert current["command"] == ["python", "-m", process.module]
    assert current["ports"] == [{"name": "api", "containerPort": process.port, "protocol": "TCP"}]
    service = next(each for each in of_kind(values, "Service") if component(each) == process.name)
    assert [port["port"] for port in service["spec"]["ports"]] == [process.port]

    given = environment(values, process.name)
    assert given["CLOUDMATRIX_PORT"] == str(process.port)
    prefix = service["metadata"]["name"].removesuffix(process.name)
    assert {key: value for key, value in given.items() if key.endswith("_URL") and "PUBLIC" not in key} == {
        f"CLOUDMATRIX_{called.upper()}_URL": ""
        if called in process.optional and called not in workloads(values)
        else f"http://{prefix}{called}:{BY_NAME[called].port}"
        for called in process.calls
        if called != "kube"
    }
    settings = {key.removeprefix("CLOUDMATRIX_").lower(): value for key, value in given.items()}
    kind = settings_class(process.module)
    assert set(settings) <= set(kind.model_fields), "a variable that no setting reads"
    kind.model_validate({key: value for key, value in settings.items() if key != "database"})


@pytest.mark.parametrize("values", ["default", "postgres", "everything"])
def test_the_endpoint_is_shown_where_the_operator_shows_it(values: str) -> None:
    operator = environment(values, "operator")
    shown = operator.get("CLOUDMATRIX_INFER_PUBLIC_URL") or operator["CLOUDMATRIX_INFER_URL"]
    assert environment(values, "infer")["CLOUDMATRIX_PUBLIC_URL"] == shown


@everywhere
def test_databases_and_disks_are_where_the_mode_says(values: str) -> None:
    for name, workload in workloads(values).items():
        stored = "CLOUDMATRIX_DATABASE" in environment(values, name)
        in_files = BY_NAME[name].has_database and values in ("default", "minimal")
        assert stored == (BY_NAME[name].has_database and not in_files), name
        on_a_volume = (in_files or BY_NAME[name].keeps_files) and values != "minimal"
        assert workload["kind"] == ("StatefulSet" if on_a_volume else "Deployment"), name
        assert ("volumeClaimTemplates" in workload["spec"]) == on_a_volume, name
        if not on_a_volume and name != "operator":
            assert workload["spec"]["strategy"] == {"type": "Recreate"}, f"two of {name} would write one database"


@everywhere
def test_every_process_is_reported_the_same_time(values: str) -> None:
    times = {
        tuple(sorted((key, value) for key, value in environment(values, name).items() if "_TIME_" in key))
        for name in workloads(values)
    }
    assert len(times) == 1
    assert {key for key, _ in times.pop()} == {
        "CLOUDMATRIX_TIME_SCALE",
        "CLOUDMATRIX_TIME_ANCHOR_WALL",
        "CLOUDMATRIX_TIME_ANCHOR_EMULATED",
    }


def test_what_a_user_says_reaches_the_process_as_reported() -> None:
    compute, link = environment("everything", "compute"), environment("everything", "link")
    assert (compute["CLOUDMATRIX_LOST_PER_CABINET"], compute["CLOUDMATRIX_SEED"]) == ("2", "12345678")
    assert (link["CLOUDMATRIX_SUPERNODES"], link["CLOUDMATRIX_LEASE_GRACE"]) == ("2", "120")
    assert environment("everything", "operator")["CLOUDMATRIX_INSTALL_CRDS"] == "false"


@everywhere
def test_every_container_is_confined_and_asked_how_it_is(values: str) -> None:
    for workload, pod in pods(values):
        name = workload["metadata"]["name"]
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert min(security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")) > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["enableServiceLinks"] is False, f"{name}: links would set variables of our prefix"
        assert pod["automountServiceAccountToken"] is (
            component(workload) == "operator" and values in ("default", "postgres")
        ), name
        assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), name
        assert not any("hostPath" in volume for volume in pod.get("volumes", [])), name
        for current in [*pod["containers"], *pod.get("initContainers", [])]:
            assert current["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert current["resources"]["requests"], name
            assert current["resources"]["limits"]["memory"], name
            mounts = {mount["name"] for mount in current["volumeMounts"]}
            claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
            assert mounts <= {volume["name"] for volume in pod["volumes"]} | claims, name
        if workload["kind"] != "Job":
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(pod["containers"][0]), name


@everywhere
def test_probes_ask_over_the_scheme_that_is_served(values: str) -> None:
    for name, workload in workloads(values).items():
        asked = [container(workload)[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [each["path"] for each in asked] == ["/healthz", "/healthz", "/readyz?exclude=database"]
        assert {each["scheme"] for each in asked} == {BY_NAME[name].scheme.upper()}


@everywhere
def test_our_pods_stay_off_the_emulated_nodes(values: str) -> None:
    for _, pod in pods(values):
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        rules = [rule for term in terms for rule in term["matchExpressions"]]
        assert rules == [{"key": "cloudmatrix.io/supernode", "operator": "DoesNotExist"}]


@everywhere
def test_objects_bear_the_recommended_labels_and_selectors_find_their_pods(values: str) -> None:
    wanted = {
        f"app.kubernetes.io/{word}" for word in ("name", "instance", "component", "version", "part-of", "managed-by")
    }
    for each in objects(values):
        assert wanted | {"helm.sh/chart"} <= set(each["metadata"]["labels"]), each["metadata"]["name"]
    pods_of = {component(each): each["spec"]["template"]["metadata"]["labels"] for each, _ in pods(values)}
    for each in of_kind(values, "Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
        selector = each["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        assert [name for name, labels in pods_of.items() if selector.items() <= labels.items()] == [component(each)]


def test_policies_let_callers_in_and_calls_out() -> None:
    policies = {component(each): each["spec"] for each in of_kind("default", "NetworkPolicy")}
    for name, policy in policies.items():
        (rule,) = policy["ingress"]
        inside = {
            peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "clients") for peer in rule["from"]
        }
        assert inside == {process.name for process in PROCESSES if name in process.calls} | {"clients"}
        assert rule["ports"] == [{"port": BY_NAME[name].port, "protocol": "TCP"}]
        reached = {
            (rule["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"], rule["ports"][0]["port"])
            for rule in policy["egress"]
            if "to" in rule
        }
        assert reached == {(called, BY_NAME[called].port) for called in BY_NAME[name].calls if called != "kube"}
        ports = {port["port"] for rule in policy["egress"] if "to" not in rule for port in rule["ports"]}
        assert ports == ({53, 443, 6443} if name == "operator" else {53})


def test_policies_lead_to_the_database_where_there_is_one() -> None:
    for each in of_kind("everything", "NetworkPolicy"):
        reached = [
            rule["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in each["spec"]["egress"]
            if "podSelector" in rule.get("to", [{}])[0]
        ]
        name = component(each)
        assert ("postgres" in reached) == (name in BY_NAME and BY_NAME[name].has_database), name


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ((), {"ports": [443, 8443, 9443], "to": None}),
        (("--set-json", "networkPolicy.webhookPorts=[]"), None),
        (
            ("--values", str(VALUES / "everything.yaml")),
            {"ports": [9443], "to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]},
        ),
    ],
)
def test_the_embedded_api_reaches_the_webhooks_that_its_users_register(
    given: tuple[str, ...], way: dict[str, Any] | None
) -> None:
    """Addresses, as clientConfig.url gives them: nobody knows beforehand which. Its other ways stay closed."""
    rendered = yaml.safe_load_all(template("--set", "kube.enabled=true", *given))
    policies = {component(each): each["spec"] for each in rendered if each and each["kind"] == "NetworkPolicy"}
    ways = [
        {"ports": [port["port"] for port in rule["ports"]], "to": rule.get("to")}
        for rule in policies["kube"]["egress"]
        if rule["ports"][0]["port"] not in (53, 5432)
    ]
    assert ways == ([way] if way else [])
    for name, policy in policies.items():
        anywhere = {port["port"] for rule in policy["egress"] if "to" not in rule for port in rule["ports"]}
        assert name == "kube" or anywhere <= {53}, name


def test_the_bundled_postgres_makes_every_database() -> None:
    made = next(
        each["data"]["databases.sql"] for each in of_kind("everything", "ConfigMap") if component(each) == "postgres"
    )
    assert re.findall(r"CREATE DATABASE (\w+);", made) == [p.name for p in PROCESSES if p.has_database]


@everywhere
def test_helm_test_asks_every_process(values: str) -> None:
    (job,) = of_kind(values, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    asked = job["spec"]["template"]["spec"]["containers"][0]["args"]
    services = {each["metadata"]["name"]: each for each in of_kind(values, "Service") if component(each) != "postgres"}
    assert sorted(asked) == sorted(
        f"{BY_NAME[component(each)].scheme}://{name}:{each['spec']['ports'][0]['port']}"
        for name, each in services.items()
    )
