"""What somebody should be told of: the alert rules, each with its threshold and how long it has to hold.

Rules are declared here and printed twice by `make regenerate`: for any Prometheus, with the defaults filled in
(docs/reference/alerts.rules.yaml), and as a template of the Helm chart, where the release's namespace narrows every
selector and values change the thresholds. `tests/observability` runs them with promtool on recorded series.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from services.observability.catalogue import by_sample


@dataclass(frozen=True)
class Threshold:
    """A number or duration that users may change: its name among the chart's values, and its default."""

    name: str
    default: str


@dataclass(frozen=True)
class Alert:
    """A rule. In `expr`, `@here@` stands for what selects the stack (nothing, where a Prometheus watches one alone),
    `@processes@` for what selects its processes and `@limit@` for the threshold; `lasting` is how long it has to be
    true."""

    name: str
    expr: str
    severity: Literal["warning", "critical"]
    summary: str
    description: str
    limit: Threshold | None = None
    lasting: Threshold | str = field(default="")

    def metrics(self) -> set[str]:
        """The names of the metrics it reads."""
        known = by_sample()
        return {known[name].name for name in re.findall(r"[a-zA-Z_:]+", self.expr) if name in known}


ALERTS = (
    Alert(
        "CloudMatrixInstanceDegraded",
        "max(matrixcompute_instances_degraded{@here@}) > 0",
        "warning",
        "An instance lacks nodes, links or bandwidth it was promised.",
        "{{ $value }} instances are degraded; `kubectl get cloudmatrixinstances -A` shows which and their condition "
        "Degraded says why.",
        lasting=Threshold("degradedFor", "5m"),
    ),
    Alert(
        "CloudMatrixInstanceStuck",
        "max(matrixcompute_instances_stuck{@here@}) > 0",
        "critical",
        "An instance is past the deadline of what is being done to it.",
        "{{ $value }} instances have been in a passing state too long; GET /v1/stuck and /v1/operations of "
        "MatrixCompute show the step they wait in.",
        lasting=Threshold("stuckFor", "1m"),
    ),
    Alert(
        "CloudMatrixInstancePending",
        'max(matrixcompute_instances{@here@,state="Pending"}) > 0',
        "warning",
        "An instance waits for what it asked for.",
        "{{ $value }} instances are Pending; their condition Scheduled says what stands in the way.",
        lasting=Threshold("pendingFor", "15m"),
    ),
    Alert(
        "CloudMatrixAgentsLost",
        'max(matrixresource_node_agents{@here@,agent="Lost"}) > @limit@',
        "warning",
        "Agents of nodes do not report any more.",
        "{{ $value }} nodes are silent; `kubectl get nodes -l cloudmatrix.io/supernode` shows which.",
        limit=Threshold("agentsLost", "0"),
        lasting=Threshold("agentsLostFor", "2m"),
    ),
    Alert(
        "CloudMatrixLinksBelowRate",
        "sum by (plane) (max by (plane, reason) (matrixlink_links_below{@here@})) > @limit@",
        "warning",
        "Links carry less than they were built for.",
        "{{ $value }} links of the plane {{ $labels.plane }}; `matrixctl top links` shows the worst.",
        limit=Threshold("linksBelow", "0"),
        lasting=Threshold("linksBelowFor", "5m"),
    ),
    Alert(
        "CloudMatrixFirstTokenLate",
        "histogram_quantile(0.9, sum by (model_name, le) "
        "(rate(vllm:time_to_first_token_seconds_bucket{@here@}[5m]))) > @limit@",
        "warning",
        "A served model answers late.",
        "The slowest tenth of the requests to {{ $labels.model_name }} waits longer than {{ $value }} s for a token.",
        limit=Threshold("firstTokenS", "5"),
        lasting=Threshold("firstTokenFor", "10m"),
    ),
    Alert(
        "CloudMatrixNobodyLeads",
        "max by (service) (cloudmatrix_leads{@here@}) == 0",
        "critical",
        "No replica of a service carries its workflows.",
        "Instances, repairs and moves of {{ $labels.service }} stand still; the log of each replica says why.",
        lasting="2m",
    ),
    Alert(
        "CloudMatrixWatcherFails",
        "increase(cloudmatrix_watcher_failures_total{@here@}[15m]) > @limit@",
        "warning",
        "A watcher fails again and again.",
        "{{ $labels.watcher }} in {{ $labels.pod }} failed {{ $value }} times in a quarter of an hour; its log says "
        "why.",
        limit=Threshold("watcherFailures", "10"),
    ),
    Alert(
        "CloudMatrixErrors",
        'sum by (pod) (rate(cloudmatrix_http_requests_total{@here@,status=~"5.."}[5m])) '
        "/ sum by (pod) (rate(cloudmatrix_http_requests_total{@here@}[5m])) > @limit@",
        "warning",
        "A service answers many requests with an error of its own.",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.pod }}.",
        limit=Threshold("errorShare", "0.05"),
        lasting="5m",
    ),
    Alert(
        "CloudMatrixKubeErrors",
        'sum by (pod) (rate(apiserver_request_total{@here@,code=~"5.."}[5m])) '
        "/ sum by (pod) (rate(apiserver_request_total{@here@}[5m])) > @limit@",
        "warning",
        "The embedded Kubernetes API answers many requests with an error of its own.",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.pod }}; its log says why, as that its "
        "disk is full.",
        limit=Threshold("kubeErrorShare", "0.05"),
        lasting="5m",
    ),
    Alert(
        "CloudMatrixKubeSlow",
        "histogram_quantile(0.99, sum by (pod, verb, le) "
        '(rate(apiserver_request_duration_seconds_bucket{@here@,verb!="WATCH"}[5m]))) > @limit@',
        "warning",
        "The embedded Kubernetes API is slow.",
        "The slowest hundredth of {{ $labels.verb }} takes longer than {{ $value }} s at {{ $labels.pod }}; "
        "apiserver_admission_webhook_admission_duration_seconds shows what webhooks have of that.",
        limit=Threshold("kubeSlowS", "1"),
        lasting=Threshold("kubeSlowFor", "5m"),
    ),
    Alert(
        "CloudMatrixKubeWatchLags",
        "max by (pod, resource) (cloudmatrix_kube_watch_lag_seconds{@here@}) > @limit@",
        "warning",
        "A watch of the embedded Kubernetes API is behind what was written.",
        "Somebody who watches {{ $labels.resource }} at {{ $labels.pod }} has not been handed a change of "
        "{{ $value }} s ago: a client reads too slowly, or the process has no time for it.",
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
    """The alerts that read a metric."""
    return [alert.name for alert in ALERTS if metric in alert.metrics()]


def for_any_prometheus() -> str:
    """The rules with their defaults, as `rule_files` of a Prometheus that watches one stack takes them."""
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
