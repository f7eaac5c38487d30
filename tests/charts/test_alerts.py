"""Alerts speak of metrics that the services export."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.charts.rendered import CHART, of_kind
from tests.upkeep.printed import application

FROM_PROMETHEUS = {"up"}
WORDS = {"max", "sum", "rate", "delta", "by", "pod"}


async def exported(folder: Path) -> str:
    """What the services with alerts of their own tell Prometheus, before anything was asked of them."""
    texts = []
    for service in ("resource", "compute"):
        (folder / service).mkdir()
        app = application(service, folder / service)
        await app.state.watchers["count"].step()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
            await http.get("/healthz")
            texts.append((await http.get("/metrics")).text)
    return "\n".join(texts)


async def test_every_series_that_the_template_selects_is_exported(tmp_path: Path) -> None:
    """The same as below of the template as it is written, which needs no Helm."""
    text = (CHART / "templates" / "monitoring.yaml").read_text()
    known = await exported(tmp_path)
    selected = set()
    for expression in re.findall(r"^ +expr: (.*(?:\n {12}.*)*)", text, re.MULTILINE):
        for name, labels in re.findall(r"(\w+)\{ \{\{- \$here -\}\} ([^}]*)\}", expression):
            if name in FROM_PROMETHEUS:
                continue
            assert re.search(rf"^# TYPE {name} ", known, re.MULTILINE), name
            selected |= {(name, *each) for each in re.findall(r'(\w+)="([^"]*)"', labels)}
    assert {("instances", "state", "Pending"), ("node_agents", "agent", "Lost")} <= selected
    for name, label, value in selected:
        assert re.search(rf'^{name}\{{[^}}]*{label}="{value}"[^}}]*\}} ', known, re.MULTILINE), (name, label, value)


@pytest.mark.usefixtures("helm_here")
async def test_every_metric_of_an_alert_is_exported(tmp_path: Path) -> None:
    (rules,) = of_kind("everything", "PrometheusRule")
    known = set(re.findall(r"^# TYPE (\S+)", await exported(tmp_path), re.MULTILINE))
    alerts = rules["spec"]["groups"][0]["rules"]
    assert {alert["alert"].removeprefix("CloudMatrix") for alert in alerts} >= {
        *("InstanceDegraded", "InstanceStuck", "AgentsLost", "WatcherFails")
    }
    for alert in alerts:
        bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", "", alert["expr"])
        named = set(re.findall(r"[a-z_]{2,}", bare)) - WORDS
        assert named, alert["expr"]
        assert named <= known | FROM_PROMETHEUS, alert["expr"]
        assert alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in ("warning", "critical")


@pytest.mark.usefixtures("helm_here")
async def test_every_series_that_an_alert_selects_is_exported(tmp_path: Path) -> None:
    (rules,) = of_kind("everything", "PrometheusRule")
    known = await exported(tmp_path)
    selected = set()
    for alert in rules["spec"]["groups"][0]["rules"]:
        for name, labels in re.findall(r"(\w+)\{([^}]*)\}", alert["expr"]):
            selected |= {(name, *each) for each in re.findall(r"(\w+)=\"([^\"]*)\"", labels) if each[0] != "namespace"}
    assert {("instances", "state", "Pending"), ("node_agents", "agent", "Lost")} <= selected
    for name, label, value in selected:
        assert re.search(rf'^{name}\{{[^}}]*{label}="{value}"[^}}]*\}} ', known, re.MULTILINE), (name, label, value)


@pytest.mark.usefixtures("helm_here")
def test_prometheus_is_led_to_processes_with_metrics() -> None:
    (monitor,) = of_kind("everything", "ServiceMonitor")
    (rule,) = monitor["spec"]["selector"]["matchExpressions"]
    assert rule["values"] == ["kube", "postgres"]
    for each in of_kind("default", "Deployment", "StatefulSet"):
        notes = each["spec"]["template"]["metadata"]["annotations"]
        port = each["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
        assert notes["prometheus.io/port"] == str(port)
