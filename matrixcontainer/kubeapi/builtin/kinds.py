"""The table of built-in kinds, from which discovery, OpenAPI, storage and the README's table are generated.

`acts` says what acts on the kind inside this server; "" means nothing does: it is only stored and served. Controllers
for those need a full Kubernetes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.builtin import (
    autoscaling,
    checks,
    core,
    disruption_budgets,
    events,
    pods,
    rbac_kinds,
    services,
    webhooks,
    workloads,
)
from matrixcontainer.kubeapi.builtin.printers import tables as printers
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy, Validator
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.selectors import field_reader
from matrixcontainer.kubeapi.registry.resource import ALL_VERBS, Registry, Resource, ScalePaths
from matrixcontainer.kubeapi.schema.structural import Schema
from matrixcontainer.kubeapi.schema.types import schema_of, table

NO_GENERATION = {"has_generation": False}  # kinds without a spec have no generation
RETURNED = {"returns_deleted": True}  # DELETE answers with the object
REVISED = NO_GENERATION | {"unconditional_update": False}  # PUT requires the resourceVersion

REPLICAS = ScalePaths(".spec.replicas", ".status.replicas", "")
WORKLOAD = ScalePaths(".spec.replicas", ".status.replicas", ".status.selector")


@dataclass(frozen=True)
class Kind:
    type_name: str  # in the generated table
    group: str
    plural: str
    short: str = ""
    namespaced: bool = True
    strategy: type[BuiltinStrategy] = BuiltinStrategy
    status: bool = False
    scale: ScalePaths | None = None
    categories: str = ""
    fields: str = ""
    subresources: tuple[tuple[str, str, str, tuple[str, ...]], ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    acts: str = ""
    storage: str = ""
    flags: Mapping[str, bool] = field(default_factory=dict)  # attributes of the strategy


POD_SUBRESOURCES = (
    ("attach", "", "PodAttachOptions", ("create", "get")),
    ("binding", "", "Binding", ("create",)),
    ("eviction", "policy/v1", "Eviction", ("create",)),
    ("exec", "", "PodExecOptions", ("create", "get")),
    ("log", "", "Pod", ("get",)),
    ("portforward", "", "PodPortForwardOptions", ("create", "get")),
    ("proxy", "", "PodProxyOptions", ("create", "delete", "get", "patch", "update")),
)
POD_FIELDS = (
    "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName"
)
EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion "
    "involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type"
)
RBAC = "rbac.authorization.k8s.io"

KINDS = (
    Kind("core.v1.Namespace", "", "namespaces", "ns", False, core.NamespaceStrategy, True, fields="status.phase",
         subresources=(("finalize", "", "Namespace", ("update",)),), acts="emptied, then removed on delete",
         verbs=tuple(v for v in ALL_VERBS if v != "deletecollection")),
    Kind("core.v1.ConfigMap", "", "configmaps", "cm", True, core.ConfigMapStrategy, acts="immutable enforced"),
    Kind("core.v1.Secret", "", "secrets", "", True, core.SecretStrategy, fields="type", acts="stringData, immutable"),
    Kind("core.v1.ServiceAccount", "", "serviceaccounts", "sa", True, core.ServiceAccountStrategy,
         subresources=(("token", "authentication.k8s.io/v1", "TokenRequest", ("create",)),),
         acts="default in each namespace; tokens"),
    Kind("core.v1.Event", "", "events", "ev", True, events.EventStrategy, fields=EVENT_FIELDS,
         acts="deleted after one hour"),
    Kind("core.v1.Node", "", "nodes", "no", False, core.NodeStrategy, True, fields="spec.unschedulable",
         acts="its pods run while it is Ready; tainted by its conditions"),
    Kind("core.v1.Pod", "", "pods", "po", True, pods.PodStrategy, True, categories="all", fields=POD_FIELDS,
         subresources=POD_SUBRESOURCES, acts="bound by a simple scheduler, run by emulated kubelets"),
    Kind("core.v1.Service", "", "services", "svc", True, services.ServiceStrategy, True, categories="all",
         fields="spec.clusterIP spec.type"),
    Kind("core.v1.PersistentVolume", "", "persistentvolumes", "pv", False, status=True,
         flags=NO_GENERATION | RETURNED),
    Kind("core.v1.PersistentVolumeClaim", "", "persistentvolumeclaims", "pvc", True, status=True,
         flags=NO_GENERATION | RETURNED),
    Kind("core.v1.ReplicationController", "", "replicationcontrollers", "rc", status=True, scale=REPLICAS,
         categories="all"),
    Kind("apps.v1.Deployment", "apps", "deployments", "deploy", True, workloads.DeploymentStrategy, True, WORKLOAD,
         "all", acts="rolled out through ReplicaSets"),
    Kind("apps.v1.ReplicaSet", "apps", "replicasets", "rs", True, workloads.TemplateStrategy, True, WORKLOAD, "all",
         acts="keeps its number of pods"),
    Kind("apps.v1.StatefulSet", "apps", "statefulsets", "sts", True, workloads.TemplateStrategy, True, WORKLOAD, "all"),
    Kind("apps.v1.DaemonSet", "apps", "daemonsets", "ds", True, workloads.TemplateStrategy, True, None, "all",
         acts="a pod on every node that its template admits; no revisions to undo to"),
    Kind("batch.v1.Job", "batch", "jobs", "", True, workloads.JobStrategy, True, None, "all", acts="run to completion"),
    Kind("batch.v1.CronJob", "batch", "cronjobs", "cj", True, BuiltinStrategy, True, None, "all"),
    Kind("coordination.v1.Lease", "coordination.k8s.io", "leases", "", True, core.LeaseStrategy),
    Kind("events.v1.Event", "events.k8s.io", "events", "ev", True, events.NewEventStrategy, storage="events",
         fields="reason reportingController regarding.kind regarding.name regarding.namespace regarding.uid type",
         acts="the same store as core events"),
    Kind("rbac.v1.Role", RBAC, "roles", "", True, rbac_kinds.RbacStrategy, acts="enforced"),
    Kind("rbac.v1.RoleBinding", RBAC, "rolebindings", "", True, rbac_kinds.BindingStrategy,
         acts="enforced"),
    Kind("rbac.v1.ClusterRole", RBAC, "clusterroles", "", False, rbac_kinds.RbacStrategy, acts="enforced"),
    Kind("rbac.v1.ClusterRoleBinding", RBAC, "clusterrolebindings", "", False, rbac_kinds.BindingStrategy,
         acts="enforced"),
    Kind("scheduling.v1.PriorityClass", "scheduling.k8s.io", "priorityclasses", "pc", False, core.PriorityClassStrategy,
         acts="sets pods' priority"),
    Kind("policy.v1.PodDisruptionBudget", "policy", "poddisruptionbudgets", "pdb", True,
         disruption_budgets.BudgetStrategy, True, acts="status maintained; checked on eviction"),
    Kind("networking.v1.Ingress", "networking.k8s.io", "ingresses", "ing", True, BuiltinStrategy, True),
    Kind("networking.v1.NetworkPolicy", "networking.k8s.io", "networkpolicies", "netpol", True, BuiltinStrategy),
    Kind("storage.v1.StorageClass", "storage.k8s.io", "storageclasses", "sc", False, flags=NO_GENERATION | RETURNED),
    Kind("storage.v1.CSINode", "storage.k8s.io", "csinodes", "", False, flags=REVISED | RETURNED),
    Kind("storage.v1.CSIDriver", "storage.k8s.io", "csidrivers", "", False, flags=REVISED | RETURNED),
    Kind("storage.v1.VolumeAttachment", "storage.k8s.io", "volumeattachments", "", False, status=True,
         flags=REVISED | RETURNED),
    Kind("storage.v1.CSIStorageCapacity", "storage.k8s.io", "csistoragecapacities", "", True, flags=REVISED),
    Kind("discovery.v1.EndpointSlice", "discovery.k8s.io", "endpointslices", "", True, BuiltinStrategy),
    Kind("autoscaling.v2.HorizontalPodAutoscaler", "autoscaling", "horizontalpodautoscalers", "hpa", True,
         autoscaling.HorizontalPodAutoscalerStrategy, True, categories="all",
         acts="scales any object with a scale subresource"),
    Kind("admissionregistration.v1.ValidatingWebhookConfiguration", "admissionregistration.k8s.io",
         "validatingwebhookconfigurations", "", False, webhooks.WebhookStrategy, categories="api-extensions",
         acts="called before writes, by URL"),
    Kind("admissionregistration.v1.MutatingWebhookConfiguration", "admissionregistration.k8s.io",
         "mutatingwebhookconfigurations", "", False, webhooks.WebhookStrategy, categories="api-extensions",
         acts="called before writes, by URL"),
    Kind("apiextensions.v1.CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", "crd crds",
         False, status=True, categories="api-extensions", acts="served as resources"),
    *(
        Kind(f"{package}.{kind}", group, plural, "", plural.startswith("local"), flags=NO_GENERATION,
             verbs=("create",), acts="answered, never stored")
        for package, group, kind, plural in (
            ("authentication.v1", "authentication.k8s.io", "TokenReview", "tokenreviews"),
            ("authentication.v1", "authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
            ("authorization.v1", "authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
            ("authorization.v1", "authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
            ("authorization.v1", "authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
            ("authorization.v1", "authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews"),
        )
    ),
)  # fmt: skip


def build_resource(kind: Kind, special: BuiltinStrategy | None = None) -> Resource:
    """`special` replaces the strategy, for a kind that a room above this one implements."""
    package, name = kind.type_name.rsplit(".", 1)
    storage = kind.storage or (f"{kind.plural}.{kind.group}" if kind.group else kind.plural)
    base = schema_of(kind.type_name)
    schema = Schema({"type": "object"})
    schema.properties = base.properties
    schema.ref = base.ref
    conversions = events.CONVERSIONS.get(kind.type_name)
    strategy = special
    if strategy is None:
        strategy = kind.strategy()
        strategy.type_name, strategy.validator = kind.type_name, validator_of(kind.type_name)
        vars(strategy).update(kind.flags)
    return Resource(
        group=kind.group,
        version=package.rsplit(".", 1)[1],
        plural=kind.plural,
        kind=name,
        namespaced=kind.namespaced,
        schema=schema,
        strategy=strategy,
        short_names=tuple(kind.short.split()),
        categories=tuple(kind.categories.split()),
        verbs=kind.verbs,
        status=kind.status,
        scale=kind.scale,
        extra_subresources=kind.subresources,
        cells=printers.CELLS.get(storage),
        storage=storage,
        storage_version="v1" if kind.storage else "",
        type_name=kind.type_name,
        fields={path: events.FIELD_READERS.get(path) or field_reader(path) for path in kind.fields.split()},
        to_storage=conversions[0] if conversions else None,
        from_storage=conversions[1] if conversions else None,
        fingerprint=f"builtin {len(table())} {kind.type_name}",
    )


NOT_VALIDATED = {"metadata", "status"}


def validator_of(type_name: str) -> Validator:
    """A validator that applies a type's rules; on updates only if something besides metadata and status has changed."""

    def validator(obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        if old is not None and all(obj.get(key) == old.get(key) for key in {*obj, *old} - NOT_VALIDATED):
            return []
        return checks.check(obj, type_name)

    return validator


def register_builtins(registry: Registry, special: Mapping[str, BuiltinStrategy]) -> None:
    """Register all built-in kinds. `special` has strategies by type name for kinds that rooms above implement."""
    for kind in KINDS:
        registry.add(build_resource(kind, special.get(kind.type_name)))


def kinds_table() -> str:
    """The README's table of kinds, in Markdown."""
    lines = ["| kind | group | scope | what acts on it here |", "| --- | --- | --- | --- |"]
    for kind in sorted(KINDS, key=lambda k: (k.group, k.plural)):
        name, version = kind.type_name.rsplit(".", 1)[1], kind.type_name.rsplit(".", 2)[1]
        group = f"{kind.group}/{version}" if kind.group else version
        scope = "namespace" if kind.namespaced else "cluster"
        lines.append(f"| {name} | {group} | {scope} | {kind.acts or 'nobody: stored and served'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(kinds_table(), end="")
