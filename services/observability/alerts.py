"""The alert rules, each with its threshold and duration.

Rules are declared here and printed twice by `make regenerate`: for any Prometheus, with the defaults filled in
(docs/reference/alerts.rules.yaml), and as a template of the Helm chart, where every selector is limited to the
release's namespace and values set the thresholds. `tests/observability` runs them with promtool on recorded series.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from services.observability.catalogue import by_sample


@dataclass(frozen=True)
class Threshold:
    """A number or duration that users may change: its name in the chart's values, and its default."""

    name: str
    default: str


@dataclass(frozen=True)
class Alert:
    """An alert rule. In `expr`, `@here@` is replaced by the selector of the stack (empty if Prometheus watches only
    one), `@processes@` by that of its processes and `@limit@` by the threshold; `lasting` is the rule's `for`."""

    name: str
    expr: str
    severity: Literal["warning", "critical"]
    summary: str
    description: str
    limit: Threshold | None = None
    lasting: Threshold | str = field(default="")

    def metrics(self) -> set[str]:
        """The names of the metrics that it uses."""
        known = by_sample()
        return {known[name].name for name in re.findall(r"[a-zA-Z_:]+", self.expr) if name in known}


ALERTS = (
    Alert(
        "CloudMatrixInstanceDegraded",
        "max(matrixcompute_instances_degraded{@here@}) > 0",
        "warning",
        "An instance lacks nodes, links or bandwidth that it was promised.",
        "{{ $value }} instances are degraded; `kubectl get cloudmatrixinstances -A` lists them, and their condition "
        "Degraded gives the reason.",
        lasting=Threshold("degradedFor", "5m"),
    ),
    Alert(
        "CloudMatrixInstanceStuck",
        "max(matrixcompute_instances_stuck{@here@}) > 0",
        "critical",
        "An operation on an instance is past its deadline.",
        "{{ $value }} instances have been in a transitional state too long; GET /v1/stuck and /v1/operations of "
        "MatrixCompute show the step at which they wait.",
        lasting=Threshold("stuckFor", "1m"),
    ),
    Alert(
        "CloudMatrixInstancePending",
        'max(matrixcompute_instances{@here@,state="Pending"}) > 0',
        "warning",
        "An instance is waiting for the resources it requested.",
        "{{ $value }} instances are Pending; their condition Scheduled says what blocks them.",
        lasting=Threshold("pendingFor", "15m"),
    ),
    Alert(
        "CloudMatrixAgentsLost",
        'max(matrixresource_node_agents{@here@,agent="Lost"}) > @limit@',
        "warning",
        "Agents of nodes have stopped reporting.",
        "{{ $value }} nodes are silent; `kubectl get nodes -l cloudmatrix.io/supernode` lists them.",
        limit=Threshold("agentsLost", "0"),
        lasting=Threshold("agentsLostFor", "2m"),
    ),
    Alert(
        "CloudMatrixLinksBelowRate",
        "sum by (plane) (max by (plane, reason) (matrixlink_links_below{@here@})) > @limit@",
        "warning",
        "Links run below their nominal rate.",
        "{{ $value }} links of plane {{ $labels.plane }} are below their nominal rate; `matrixctl top links` shows the "
        "worst.",
        limit=Threshold("linksBelow", "0"),
        lasting=Threshold("linksBelowFor", "5m"),
    ),
    Alert(
        "CloudMatrixFirstTokenLate",
        "histogram_quantile(0.9, sum by (model_name, le) "
        "(rate(vllm:time_to_first_token_seconds_bucket{@here@}[5m]))) > @limit@",
        "warning",
        "The time to first token of a served model is too long.",
        "The slowest tenth of requests to {{ $labels.model_name }} waits more than {{ $value }} s for the first token.",
        limit=Threshold("firstTokenS", "5"),
        lasting=Threshold("firstTokenFor", "10m"),
    ),
    Alert(
        "CloudMatrixNobodyLeads",
        "max by (service) (cloudmatrix_leads{@here@}) == 0",
        "critical",
        "No replica of a service is leader, so its workflows do not run.",
        "Instances, repairs and moves of {{ $labels.service }} make no progress; see the log of each replica.",
        lasting="2m",
    ),
    Alert(
        "CloudMatrixWatcherFails",
        "increase(cloudmatrix_watcher_failures_total{@here@}[15m]) > @limit@",
        "warning",
        "A watcher fails repeatedly.",
        "{{ $labels.watcher }} in {{ $labels.pod }} failed {{ $value }} times in 15 minutes; see its log.",
        limit=Threshold("watcherFailures", "10"),
    ),
    Alert(
        "CloudMatrixErrors",
        'sum by (pod) (rate(cloudmatrix_http_requests_total{@here@,status=~"5.."}[5m])) '
        "/ sum by (pod) (rate(cloudmatrix_http_requests_total{@here@}[5m])) > @limit@",
        "warning",
        "A service answers many requests with server errors.",
        "{{ $value | humanizePercentage }} of requests to {{ $labels.pod }} got a 5xx status.",
        limit=Threshold("errorShare", "0.05"),
        lasting="5m",
    ),
    Alert(
        "CloudMatrixKubeErrors",
        'sum by (pod) (rate(apiserver_request_total{@here@,code=~"5.."}[5m])) '
        "/ sum by (pod) (rate(apiserver_request_total{@here@}[5m])) > @limit@",
        "warning",
        "The embedded Kubernetes API answers many requests with server errors.",
        "{{ $value | humanizePercentage }} of requests to {{ $labels.pod }} got a 5xx status; its log gives the cause, "
        "such as a full disk.",
        limit=Threshold("kubeErrorShare", "0.05"),
        lasting="5m",
    ),
    Alert(
        "CloudMatrixKubeSlow",
        "histogram_quantile(0.99, sum by (pod, verb, le) "
        '(rate(apiserver_request_duration_seconds_bucket{@here@,verb!="WATCH"}[5m]))) > @limit@',
        "warning",
        "The embedded Kubernetes API is slow.",
        "The slowest hundredth of {{ $labels.verb }} requests takes more than {{ $value }} s at {{ $labels.pod }}; "
        "apiserver_admission_webhook_admission_duration_seconds shows the share of webhooks.",
        limit=Threshold("kubeSlowS", "1"),
        lasting=Threshold("kubeSlowFor", "5m"),
    ),
    Alert(
        "CloudMatrixKubeWatchLags",
        "max by (pod, resource) (cloudmatrix_kube_watch_lag_seconds{@here@}) > @limit@",
        "warning",
        "A watch of the embedded Kubernetes API lags behind.",
        "A watch of {{ $labels.resource }} at {{ $labels.pod }} has not received a change made {{ $value }} s ago: its "
        "client reads too slowly, or the process is overloaded.",
        limit=Threshold("kubeWatchLagS", "10"),
        lasting="2m",
    ),
    Alert(
        "CloudMatrixProcessDown",
        "up{@here@,@processes@} == 0",
        "critical",
        "A process does not answer.",
        "{{ $labels.pod }} of {{ $labels.service }} has not answered for two minutes.",
        lasting="2m",
    ),
)


def used_by(metric: str) -> list[str]:
    """The alerts that use a metric."""
    return [alert.name for alert in ALERTS if metric in alert.metrics()]


def for_any_prometheus() -> str:
    """The rules with their defaults, as a rule file for a Prometheus that watches one stack."""
    lines = [
        "# Printed from services/observability/alerts.py by `make regenerate`.",
        "# For a Prometheus whose job `cloudmatrix` scrapes the processes of one stack; the Helm chart has the same",
        "# rules as a PrometheusRule, with thresholds from its values.",
        "groups:",
        "  - name: cloudmatrix",
        "    rules:",
    ]
    for alert in ALERTS:
        expr = alert.expr.replace("@processes@", 'job="cloudmatrix"').replace("@here@,", "").replace("{@here@}", "")
        if alert.limit is not None:
            expr = expr.replace("@limit@", alert.limit.default)
        lines += _rule(
            alert, expr, alert.lasting.default if isinstance(alert.lasting, Threshold) else alert.lasting, "      "
        )
    return "\n".join(lines) + "\n"


def for_the_chart() -> str:
    """The rules as a template of the Helm chart."""
    lines = [
        "{{- /* Printed from services/observability/alerts.py by `make regenerate`. */}}",
        "{{- with .Values.monitoring.rules }}",
        "{{- if .enabled }}",
        '{{- $fullname := include "cloudmatrix.fullname" $ }}',
        '{{- $here := printf "namespace=%q" $.Release.Namespace }}',
        "---",
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        '  {{- include "cloudmatrix.metadata" (list $ "monitoring" $fullname) | nindent 2 }}',
        "    {{- with .labels }}",
        "    {{- toYaml . | nindent 4 }}",
        "    {{- end }}",
        "spec:",
        "  groups:",
        "    - name: cloudmatrix",
        "      rules:",
    ]
    for alert in ALERTS:
        expr = alert.expr.replace("@processes@", 'service=~"{{ $fullname }}-.+"').replace("@here@", "{{- $here -}}")
        expr = expr.replace("{{{-", "{ {{-").replace("-}}}", "-}} }").replace("-}},", "-}} ,")
        if alert.limit is not None:
            expr = expr.replace("@limit@", f"{{{{ .{alert.limit.name} }}}}")
        lasting = f"{{{{ .{alert.lasting.name} }}}}" if isinstance(alert.lasting, Threshold) else alert.lasting
        lines += _rule(alert, expr, lasting, "        ", escaped=True)
    return "\n".join([*lines, "{{- end }}", "{{- end }}"]) + "\n"


def _rule(alert: Alert, expr: str, lasting: str, indent: str, *, escaped: bool = False) -> list[str]:
    def text(words: str) -> str:
        return re.sub(r"\{\{ (.+?) \}\}", r'{{ "{{ \1 }}" }}', words) if escaped else words

    rule = [f"- alert: {alert.name}", "  expr: >-", f"    {expr}"]
    rule += [f"  for: {lasting}"] if lasting else []
    rule += [
        f"  labels: {{severity: {alert.severity}}}",
        "  annotations:",
        f"    summary: {alert.summary}",
        f'    description: "{text(alert.description)}"',
    ]
    return [indent + line for line in rule]
