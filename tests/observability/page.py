"""docs/reference/metrics.md, printed from the declarations."""

from __future__ import annotations

from matrixcommon.telemetry.metric import Label, Metric
from services.observability.alerts import ALERTS, Threshold, used_by
from services.observability.catalogue import CATALOGUE

HEAD = """# Metrics and alerts

Printed from the declarations in the code by `make regenerate`. `GET /metrics` of each process has them, for a token
that may read every project. `stable`: name, unit and labels stay for as long as the major version; `alpha`: they may
change. Times marked emulated pass with the stack's clock, `--time-scale` times as fast as the wall. A label's bound is
the most values it takes in one process; a histogram has a series for each bucket and two more.

[Dashboards and alert rules](../how-to/watch-a-stack.md) are built on these.
"""


def printed() -> str:
    lines = [HEAD]
    for process, metrics in CATALOGUE.items():
        lines += [f"## {process[0].upper()}{process[1:]}" if " " in process else f"## `{process}`", ""]
        lines += ["| metric | kind | unit | labels and their bound | stability | alerts | what it says |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |", *map(_row, metrics), ""]
    lines += ["## Alerts", "", "The rules, with their defaults: [alerts.rules.yaml](alerts.rules.yaml).", ""]
    lines += ["| alert | severity | when | for | value of the chart |", "| --- | --- | --- | --- | --- |"]
    for alert in ALERTS:
        settings = [each for each in (alert.limit, alert.lasting) if isinstance(each, Threshold)]
        lasting = alert.lasting.default if isinstance(alert.lasting, Threshold) else alert.lasting
        names = ", ".join(f"`{each.name}: {each.default}`" for each in settings) or "-"
        lines.append(f"| `{alert.name}` | {alert.severity} | {alert.summary} | {lasting or 'at once'} | {names} |")
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = "; ".join(map(_bound, metric.labels)) or "-"
    if metric.together is not None:
        labels += f"; together {_count(metric.together)}"
    alerts = ", ".join(f"`{name}`" for name in used_by(metric.name)) or "-"
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.stability} | {alerts} | {metric.says} |"


def _bound(label: Label) -> str:
    if label.values and len(label.values) <= 8:
        shown = ", ".join(value or '""' for value in label.values)
        return f"`{label.name}`: {shown}"
    return f"`{label.name}`: {label.says} ({_count(label)})"


def _count(label: Label) -> str:
    return f"{label.per_supernode} for each supernode" if label.per_supernode else f"at most {label.bound()}"
