"""Table columns and cells of built-in kinds; kinds not listed here have Name and Age.

A table is defined by a line such as `Name ~IP +Data=#data Status=status.phase|Unknown`. Prefixes: ~ marks a column for
`-o wide` only, + an integer, ? a boolean, @ a date, # a name; _ stands for a space. After = comes the source of the
cell: a path, with a default after |; # for the length of the value; @ for one of FILLERS. Name, Age and Created_At need
no source; other columns without one get the values that the kind's own function returns, in order.
"""

import json
from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.builtin.printers import cells, cluster, workloads
from matrixcontainer.kubeapi.registry.printer_columns import AGE, NAME, column

Obj = dict[str, Any]
CellFunction = Callable[[Obj, float], Any]
Own = Callable[[Obj, float], list[Any]]

COLUMN_MARKS = {"~": "wide", "+": "integer", "?": "boolean", "@": "date", "#": "name"}
EMPTY: dict[str, Any] = {"integer": 0, "boolean": False}
SHORTHANDS: dict[str, CellFunction] = {
    "Name": lambda obj, now: cells.name(obj),
    "Age": cells.age,
    "Created At": lambda obj, now: str(obj["metadata"].get("creationTimestamp", "")),
    "@containers": lambda obj, now: cells.containers(cells.get_nested(obj, "spec", "template", "spec", default={}))[0],
    "@images": lambda obj, now: cells.containers(cells.get_nested(obj, "spec", "template", "spec", default={}))[1],
    "@selector": lambda obj, now: cells.label_selector(cells.get_nested(obj, "spec", "selector")),
}
PODS = "~Containers=@containers ~Images=@images"
COUNTS = "+Desired=spec.replicas|1 +Current=status.replicas +Ready=status.readyReplicas"
BINDING = "Name Role Age ~Users ~Groups ~ServiceAccounts"
WEBHOOKS = "Name +Webhooks=#webhooks Age"
PLAIN = "Name @Created_At"
RBAC = "rbac.authorization.k8s.io"


def _cell_function(source: str, kind: str) -> CellFunction:
    """The function that reads a cell from its source."""
    if source in SHORTHANDS:
        return SHORTHANDS[source]
    path, _, text = source.partition("|")
    keys = path.lstrip("#").split(".")
    if path.startswith("#"):
        return lambda obj, now: len(cells.get_nested(obj, *keys, default=()))
    try:
        default = json.loads(text)
    except ValueError:
        default = text or EMPTY.get(kind, "")

    def read(obj: Obj, now: float) -> Any:
        found = cells.get_nested(obj, *keys, default=default)
        return default if found == "" else found

    return read


def _table(text: str, own: Own = lambda obj, now: []) -> tuple[list[dict[str, Any]], Own]:
    """The column definitions of a table, and the function that returns a row's cells."""
    columns, fillers = [], []
    for word in text.split():
        title, _, source = word.partition("=")
        label = title.lstrip("".join(COLUMN_MARKS)).replace("_", " ")
        marks = {COLUMN_MARKS[mark] for mark in title[: len(title) - len(label)]}
        kind = next((one for one in ("integer", "boolean", "date") if one in marks), "string")
        fixed = {"Age": AGE, "Name": NAME | {"priority": int("wide" in marks)}}.get(label)
        form = "name" if "name" in marks else ""
        columns.append(fixed or column(label, kind, int("wide" in marks), form))
        source = source or label
        fillers.append(_cell_function(source, kind) if source != label or label in SHORTHANDS else None)

    def row(obj: Obj, now: float) -> list[Any]:
        rest = iter(own(obj, now))
        return [next(rest) if fill is None else fill(obj, now) for fill in fillers]

    return columns, row


_TABLES = {
    "pods": _table(
        "Name Ready Status Restarts Age ~IP ~Node=spec.nodeName|<none> "
        "~Nominated_Node=status.nominatedNodeName|<none> ~Readiness_Gates",
        workloads.pod,
    ),
    "deployments.apps": _table(
        f"Name Ready Up-to-date=status.updatedReplicas|0 Available=status.availableReplicas|0 Age {PODS} ~Selector",
        workloads.deployment,
    ),
    "replicasets.apps": _table(f"Name {COUNTS} Age {PODS} ~Selector=@selector"),
    "statefulsets.apps": _table(f"Name Ready Age {PODS}", workloads.ready_of_desired),
    "daemonsets.apps": _table(
        "Name +Desired=status.desiredNumberScheduled +Current=status.currentNumberScheduled +Ready=status.numberReady "
        "+Up-to-date=status.updatedNumberScheduled +Available=status.numberAvailable Node_Selector Age "
        f"{PODS} ~Selector=@selector",
        workloads.daemon_set,
    ),
    "jobs.batch": _table(f"Name Status Completions Duration Age {PODS} ~Selector=@selector", workloads.job),
    "horizontalpodautoscalers.autoscaling": _table(
        "Name Reference Targets MinPods MaxPods=spec.maxReplicas|0 Replicas=status.currentReplicas|0 Age",
        workloads.autoscaler,
    ),
    "poddisruptionbudgets.policy": _table(
        "Name Min_Available Max_Unavailable +Allowed_Disruptions=status.disruptionsAllowed Age", workloads.budget
    ),
    "nodes": _table(
        "Name Status Roles Age Version=status.nodeInfo.kubeletVersion ~Internal-IP ~External-IP "
        "~OS-Image=status.nodeInfo.osImage|<unknown> ~Kernel-Version=status.nodeInfo.kernelVersion|<unknown> "
        "~Container-Runtime=status.nodeInfo.containerRuntimeVersion|<unknown>",
        cluster.node,
    ),
    "events": _table(
        "Last_Seen Type=type Reason=reason Object ~Subobject ~Source Message ~First_Seen ~Count ~#Name", cluster.event
    ),
    "namespaces": _table("Name Status=status.phase Age"),
    "configmaps": _table("Name Data Age", cluster.config_map),
    "secrets": _table("Name Type=type Data=#data Age"),
    "serviceaccounts": _table("Name Secrets=#secrets Age"),
    "leases.coordination.k8s.io": _table("Name Holder=spec.holderIdentity Age"),
    "priorityclasses.scheduling.k8s.io": _table(
        "Name +Value=value ?Global-Default=globalDefault Age PreemptionPolicy=preemptionPolicy"
    ),
    "services": _table("Name Type=spec.type Cluster-IP External-IP Port(s) Age ~Selector", cluster.service),
    "customresourcedefinitions.apiextensions.k8s.io": _table(PLAIN),
    f"roles.{RBAC}": _table(PLAIN),
    f"clusterroles.{RBAC}": _table(PLAIN),
    f"rolebindings.{RBAC}": _table(BINDING, cluster.role_binding),
    f"clusterrolebindings.{RBAC}": _table(BINDING, cluster.role_binding),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _table(WEBHOOKS),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _table(WEBHOOKS),
}

COLUMNS = {storage: columns for storage, (columns, _) in _TABLES.items()}
CELLS = {storage: row for storage, (_, row) in _TABLES.items()}
ROW_CONDITIONS = {"pods": workloads.pod_row_conditions}
