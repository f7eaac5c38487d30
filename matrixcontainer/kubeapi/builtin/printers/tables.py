"""The columns people expect of built-in kinds, and who fills in the cells."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.builtin.printers import cluster, workloads
from matrixcontainer.kubeapi.registry.printer_columns import AGE, column

Obj = dict[str, Any]
Cells = Callable[[Obj, float], list[Any]]

MARKS = {"~": "wide", "+": "integer", "?": "boolean", "@": "date", "#": "name"}
BINDING = "Name Role Age ~Users ~Groups ~ServiceAccounts"
REPLICAS = "Name +Desired +Current +Ready Age ~Containers ~Images ~Selector"
WEBHOOKS = "Name +Webhooks Age"
PLAIN = "Name @Created_At"
RBAC = "rbac.authorization.k8s.io"


def _columns(text: str) -> list[dict[str, Any]]:
    """`Name Ready ~IP +Data`: ~ marks wide-only columns, + integers, ? truths, @ dates, # names; _ is a space."""
    found = []
    for word in text.split():
        label = word.lstrip("".join(MARKS))
        reported = {MARKS[mark] for mark in word[: len(word) - len(label)]}
        kind = next((one for one in ("integer", "boolean", "date") if one in reported), "string")
        if label == "Age":
            found.append(AGE)
        else:
            form = "name" if word == "Name" or "name" in reported else ""
            about = "The object's name, of its own within its namespace." if form and label == "Name" else ""
            found.append(column(label.replace("_", " "), kind, int("wide" in reported), form, about))
    return found


_TABLE: dict[str, tuple[str, Cells]] = {
    "pods": ("Name Ready Status Restarts Age ~IP ~Node ~Nominated_Node ~Readiness_Gates", workloads.pod),
    "podtemplates": ("Name Containers Images Pod_Labels", workloads.pod_template),
    "replicationcontrollers": (REPLICAS, workloads.replication_controller),
    "deployments.apps": ("Name Ready Up-to-date Available Age ~Containers ~Images ~Selector", workloads.deployment),
    "replicasets.apps": (REPLICAS, workloads.replica_set),
    "statefulsets.apps": ("Name Ready Age ~Containers ~Images", workloads.stateful_set),
    "daemonsets.apps": (
        "Name +Desired +Current +Ready +Up-to-date +Available Node_Selector Age ~Containers ~Images ~Selector",
        workloads.daemon_set,
    ),
    "controllerrevisions.apps": ("Name Controller Revision Age", workloads.controller_revision),
    "jobs.batch": ("Name Status Completions Duration Age ~Containers ~Images ~Selector", workloads.job),
    "cronjobs.batch": (
        "Name Schedule Timezone ?Suspend +Active Last_Schedule Age ~Containers ~Images ~Selector",
        workloads.cron_job,
    ),
    "horizontalpodautoscalers.autoscaling": (
        "Name Reference Targets MinPods MaxPods Replicas Age",
        workloads.autoscaler,
    ),
    "poddisruptionbudgets.policy": ("Name Min_Available Max_Unavailable +Allowed_Disruptions Age", workloads.budget),
    "nodes": (
        "Name Status Roles Age Version ~Internal-IP ~External-IP ~OS-Image ~Kernel-Version ~Container-Runtime",
        cluster.node,
    ),
    "events": (
        "Last_Seen Type Reason Object ~Subobject ~Source Message ~First_Seen ~Count ~#Name",
        cluster.event,
    ),
    "namespaces": ("Name Status Age", cluster.namespace),
    "configmaps": ("Name Data Age", cluster.config_map),
    "secrets": ("Name Type Data Age", cluster.secret),
    "serviceaccounts": ("Name Secrets Age", cluster.service_account),
    "leases.coordination.k8s.io": ("Name Holder Age", cluster.lease),
    "resourcequotas": ("Name Request Limit Age", cluster.quota),
    "limitranges": (PLAIN, cluster.named),
    "priorityclasses.scheduling.k8s.io": (
        "Name +Value ?Global-Default Age PreemptionPolicy",
        cluster.priority_class,
    ),
    "runtimeclasses.node.k8s.io": ("Name Handler Age", cluster.handled),
    "services": ("Name Type Cluster-IP External-IP Port(s) Age ~Selector", cluster.service),
    "endpoints": ("Name Endpoints Age", cluster.endpoints),
    "endpointslices.discovery.k8s.io": ("Name AddressType Ports Endpoints Age", cluster.endpoint_slice),
    "ingresses.networking.k8s.io": ("Name Class Hosts Address Ports Age", cluster.ingress),
    "ingressclasses.networking.k8s.io": ("Name Controller Parameters Age", cluster.ingress_class),
    "networkpolicies.networking.k8s.io": ("Name Pod-Selector Age", cluster.network_policy),
    "persistentvolumes": (
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
        "~VolumeMode",
        cluster.volume,
    ),
    "persistentvolumeclaims": (
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age ~VolumeMode",
        cluster.claim,
    ),
    "storageclasses.storage.k8s.io": (
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
        cluster.storage_class,
    ),
    "volumeattachments.storage.k8s.io": ("Name #Attacher PV Node ?Attached Age", cluster.volume_attachment),
    "csinodes.storage.k8s.io": ("Name +Drivers Age", cluster.csi_node),
    "csidrivers.storage.k8s.io": (
        "Name ?AttachRequired ?PodInfoOnMount ?StorageCapacity TokenRequests ?RequiresRepublish Modes Age",
        cluster.csi_driver,
    ),
    "csistoragecapacities.storage.k8s.io": (PLAIN, cluster.named),
    "customresourcedefinitions.apiextensions.k8s.io": (PLAIN, cluster.named),
    f"roles.{RBAC}": (PLAIN, cluster.named),
    f"clusterroles.{RBAC}": (PLAIN, cluster.named),
    f"rolebindings.{RBAC}": (BINDING, cluster.role_binding),
    f"clusterrolebindings.{RBAC}": (BINDING, cluster.role_binding),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (WEBHOOKS, cluster.webhooks),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (WEBHOOKS, cluster.webhooks),
}

COLUMNS = {storage: _columns(text) for storage, (text, _) in _TABLE.items()}
CELLS = {storage: cells for storage, (_, cells) in _TABLE.items()}
ROW_CONDITIONS = {"pods": workloads.pod_row_conditions}
