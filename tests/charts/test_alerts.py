"""The chart's alerts are the declared ones, narrowed to the release, with thresholds from its values."""

from __future__ import annotations

import re

import pytest
import yaml

from services.observability.alerts import ALERTS, for_any_prometheus
from tests.charts.rendered import NAMESPACE, of_kind, template
from tests.observability.dashboards import DASHBOARDS, printed

pytestmark = pytest.mark.usefixtures("helm_here")


def test_the_chart_has_every_alert_narrowed_to_its_release() -> None:
    (rules,) = of_kind("everything", "PrometheusRule")
    rendered = {alert["alert"]: alert for alert in rules["spec"]["groups"][0]["rules"]}
    declared = {alert["alert"]: alert for alert in yaml.safe_load(for_any_prometheus())["groups"][0]["rules"]}
    assert list(rendered) == list(declared) == [alert.name for alert in ALERTS]
    for name, alert in rendered.items():
        selectors = re.findall(r"\{([^}]*)\}", alert["expr"])
        assert selectors
        assert all(f'namespace="{NAMESPACE}"' in selector for selector in selectors), alert["expr"]
        assert alert["annotations"] == declared[name]["annotations"]
        assert alert["labels"] == declared[name]["labels"]
        if name not in ("CloudMatrixAgentsLost", "CloudMatrixProcessDown"):
            narrowed = re.sub(r'namespace="\w+",?', "", alert["expr"]).replace("{}", "")
            assert "".join(narrowed.split()) == "".join(declared[name]["expr"].split())
    assert rendered["CloudMatrixAgentsLost"]["expr"].endswith("> 2"), "the value that this set of values gives"


def test_prometheus_is_led_to_processes_with_metrics() -> None:
    monitors = {each["metadata"]["name"]: each["spec"] for each in of_kind("everything", "ServiceMonitor")}
    (rule,) = monitors["machine"]["selector"]["matchExpressions"]
    assert rule["values"] == ["kube", "postgres"]
    (endpoint,) = monitors["machine-kube"]["endpoints"]
    assert monitors["machine-kube"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "kube"
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "machine-kube")
    secret = next(each for each in of_kind("everything", "Secret") if each["metadata"]["name"] == "machine-kube")
    for given in (endpoint["authorization"]["credentials"], endpoint["tlsConfig"]["ca"]["secret"]):
        assert given["name"] == "machine-kube"
        assert given["key"] in {**secret.get("data", {}), **secret.get("stringData", {})}
    assert endpoint["authorization"]["credentials"]["key"] == "metrics-token", "and not the administrator's"
    for each in of_kind("default", "Deployment", "StatefulSet"):
        notes = each["spec"]["template"]["metadata"]["annotations"]
        port = each["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
        assert notes["prometheus.io/port"] == str(port)


def test_dashboards_come_as_they_are_printed_where_they_are_asked_for() -> None:
    asked = yaml.safe_load_all(template("--set", "monitoring.dashboards.enabled=true"))
    (found,) = [each for each in asked if each and each["metadata"]["name"].endswith("-dashboards")]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"] == {f"{name}.json": printed(name) for name in DASHBOARDS}
    assert "-dashboards" not in template()
