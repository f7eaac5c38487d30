"""The tables built-in kinds are settled and judged by: quantities, base64, zero values, defaults, rules."""

from copy import deepcopy
from typing import Any

import pytest

from matrixcontainer.kubeapi.builtin import checks, conversion
from matrixcontainer.kubeapi.builtin.kinds import KINDS
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, canonical
from matrixcontainer.kubeapi.schema.types import table


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("4000m", "4"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("100000", "100k"),
        ("1e3", "1e3"),
        ("1E6", "1e6"),
        ("12e-1", "1200e-3"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("100n", "1m"),
        ("-5", "-5"),
        ("0Gi", "0"),
        ("+8", "8"),
        ("123456789k", "123456789k"),
    ],
)
def test_quantities_are_canonical(text: str, shortest: str) -> None:
    assert canonical(text) == shortest
    assert canonical(shortest) == shortest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("much", "must match the regular expression"),
        ("", "must match the regular expression"),
        ("1 Gi", "must match the regular expression"),
        ("1.2.3", "unable to parse numeric part"),
        ("1Kb", "must match the regular expression"),
        ("1mi", "unable to parse quantity's suffix"),
    ],
)
def test_invalid_quantity_messages(text: str, why: str) -> None:
    with pytest.raises(InvalidQuantity, match=why):
        canonical(text)


@pytest.mark.parametrize("text", ["", "Yg==", "YWJj", "YW\nJj", None])
def test_base64_is_accepted(text: str | None) -> None:
    conversion._check_base64(text)


@pytest.mark.parametrize("text", ["v", "not base64!", "YQ=", "YQ=x", "YQ==x", "=", "YWJ", 5])
def test_invalid_base64_is_refused(text: Any) -> None:
    with pytest.raises(conversion.DecodingError, match="base64"):
        conversion._check_base64(text)


def with_defaults(name: str, **given: Any) -> dict[str, Any]:
    value = deepcopy(given)
    conversion.apply_defaults(value, name)
    return value


@pytest.mark.parametrize(
    ("name", "given", "path", "wanted"),
    [
        ("core.v1.Event", {}, "source", {}),
        ("core.v1.Event", {}, "reportingComponent", ""),
        ("rbac.v1.Role", {}, "rules", None),
        ("apps.v1.Deployment", {}, "spec.template.metadata.creationTimestamp", None),
        ("apps.v1.Deployment", {}, "spec.strategy.rollingUpdate", {"maxUnavailable": "25%", "maxSurge": "25%"}),
        ("apps.v1.Deployment", {"spec": {"replicas": 0}}, "spec.replicas", 0),
        ("apps.v1.DaemonSet", {}, "spec.updateStrategy.rollingUpdate", {"maxUnavailable": 1, "maxSurge": 0}),
        ("apps.v1.StatefulSet", {}, "spec.updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ("batch.v1.Job", {"spec": {"parallelism": 3}}, "spec.completions", KeyError),
        ("batch.v1.Job", {}, "spec.completions", 1),
        ("networking.v1.NetworkPolicy", {"spec": {"egress": [{}]}}, "spec.policyTypes", ["Ingress", "Egress"]),
        ("core.v1.Service", {"spec": {"ports": [{"port": 80}]}}, "spec.ports.0.targetPort", 80),
        ("core.v1.Service", {"spec": {"type": "LoadBalancer"}}, "spec.externalTrafficPolicy", "Cluster"),
        ("core.v1.Service", {"spec": {"sessionAffinity": "ClientIP"}}, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800),
        ("core.v1.Pod", {"spec": {"containers": [{"image": "a/b:c:1"}]}}, "spec.containers.0.imagePullPolicy", "IfNotPresent"),
        ("core.v1.Pod", {"spec": {"containers": [{"image": "h:5000/b"}]}}, "spec.containers.0.imagePullPolicy", "Always"),
        ("core.v1.Pod", {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}, "spec.containers.0.resources.requests", {"cpu": "1"}),
        ("core.v1.Pod", {"spec": {"volumes": [{"name": "v"}]}}, "spec.volumes.0.emptyDir", {}),
        ("core.v1.Pod", {"spec": {"containers": [{"livenessProbe": {"periodSeconds": 3}}]}}, "spec.containers.0.livenessProbe.periodSeconds", 3),
        ("core.v1.Node", {"status": {"capacity": {"cpu": "2"}}}, "status.allocatable", {"cpu": "2"}),
    ],
)  # fmt: skip
def test_defaults(name: str, given: dict[str, Any], path: str, wanted: Any) -> None:
    value: Any = with_defaults(name, **given)
    assert with_defaults(name, **value) == value, "settling again changes nothing"
    for step in path.split(".")[:-1]:
        value = value[int(step)] if step.isdigit() else value[step]
    last = path.split(".")[-1]
    if wanted is KeyError:
        assert last not in value
    else:
        assert value[last] == wanted


def test_omitempty_fields_are_dropped() -> None:
    pod = {
        "metadata": {"labels": {}, "name": "x"},
        "spec": {
            "hostNetwork": False,
            "tolerations": [],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "", "args": [], "tty": False, "resources": {"limits": {}}}],
        },
    }
    conversion.drop_empty(pod, "core.v1.Pod")
    container = {"name": "", "resources": {}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    assert pod == {"metadata": {"name": "x"}, "spec": spec}


C = {"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
PORTS = {"ports": [{"containerPort": 80, "protocol": "TCP", "name": "a"}] * 2}
SPEC = {"restartPolicy": "Always", "dnsPolicy": "Default"}


def a_pod(**container: Any) -> dict[str, Any]:
    return {"spec": SPEC | {"containers": [C | container]}}


@pytest.mark.parametrize(
    ("name", "obj", "expected"),
    [
        ("core.v1.Pod", a_pod(), []),
        ("core.v1.Pod", a_pod(**PORTS), ['spec.containers[0].ports[1].name: Duplicate value: "a"']),
        ("core.v1.Pod", a_pod(env=[{"name": "A", "value": "v", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "x"}}}]),
         ['spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty']),
        ("core.v1.Pod", a_pod(resources={"requests": {"huawei.com/Ascend910": "8"}}),
         ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"]),
        ("core.v1.Pod", a_pod(resources={"requests": {"huawei.com/Ascend910": "4"}, "limits": {"huawei.com/Ascend910": "8"}}),
         ['spec.containers[0].resources.requests: Invalid value: "4": must be equal to huawei.com/Ascend910 limit of 8']),
        ("core.v1.Pod", a_pod(resources={"limits": {"wishes": "1"}}),
         ["spec.containers[0].resources.limits[wishes]: Invalid value: wishes: must be a standard resource type or fully qualified",
          "spec.containers[0].resources.limits[wishes]: Invalid value: wishes: must be a standard resource for containers"]),
        ("core.v1.Pod", a_pod(livenessProbe={}), ["spec.containers[0].livenessProbe: Required value: must specify a handler type"]),
        ("core.v1.Pod", a_pod(livenessProbe={"tcpSocket": {"port": "no name at all"}, "exec": {"command": ["a"]}}),
         ["spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
          'spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "no name at all": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)']),
        ("core.v1.Pod", {"spec": SPEC | {"containers": [C], "tolerations": [{"operator": "Exists", "value": "x"}]}},
         ["spec.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'"]),
        ("policy.v1.PodDisruptionBudget", {"spec": {"minAvailable": "150%"}}, ['spec.minAvailable: Invalid value: "150%": must not be greater than 100%']),
        ("apps.v1.Deployment", {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
         ["spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"]),
    ],
)  # fmt: skip
def test_all_errors_are_reported(name: str, obj: dict[str, Any], expected: list[str]) -> None:
    assert sorted(map(str, checks.check(obj, name))) == sorted(expected)


def test_rules_and_defaults_are_of_existing_structs() -> None:
    assert set(checks.RULES) | set(conversion.DEFAULTS) | set(conversion.DEFAULTERS) <= set(table())
    assert {kind.type_name for kind in KINDS} <= set(table())
