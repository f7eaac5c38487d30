"""Workload kinds and services: the defaults and checks that clients see. Nobody here runs them; see the README."""

import random
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.builtin.pods import check_pod_spec, default_pod_spec
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.selectors import matches_label_selector
from matrixcontainer.kubeapi.strategy import Strategy, is_label_1035

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource


def check_label_selector(selector: dict[str, Any], path: str) -> list[Cause]:
    found: list[Cause] = []
    for index, term in enumerate(selector.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = term.get("operator", ""), term.get("values")
        if not term.get("key"):
            found.append(errors.required(f"{where}.key"))
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            found.append(errors.invalid(f"{where}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            found.append(errors.required(f"{where}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(errors.forbidden_field(f"{where}.values", text))
    return found


class TemplateStrategy(Strategy):
    """A selector over pods and a template for them."""

    selector_fixed = True
    restart_policies: tuple[str, ...] = ("Always",)

    def default(self, obj: dict[str, Any]) -> None:
        template = obj.setdefault("spec", {}).setdefault("template", {})
        template.setdefault("metadata", {}).setdefault("creationTimestamp", None)  # as Go prints it
        default_pod_spec(template.setdefault("spec", {}))

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj["spec"]
        found: list[Cause] = []
        labels = (spec.get("template", {}).get("metadata") or {}).get("labels") or {}
        selector = spec.get("selector")
        found += check_label_selector(selector or {}, "spec.selector")
        if not selector:
            found.append(errors.required("spec.selector"))
        elif not matches_label_selector(selector, labels):
            text = "`selector` does not match template `labels`"
            found.append(errors.invalid("spec.template.metadata.labels", labels, text))
        if old is not None and self.selector_fixed and old["spec"].get("selector") != selector:
            found.append(errors.invalid("spec.selector", selector, "field is immutable"))
        if (spec.get("replicas") or 0) < 0:
            found.append(errors.invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        template = spec.get("template", {}).get("spec", {})
        if template.get("restartPolicy") not in self.restart_policies:
            allowed = list(self.restart_policies)
            path = "spec.template.spec.restartPolicy"
            found.append(errors.not_supported(path, template.get("restartPolicy"), allowed))
        return found + check_pod_spec(template, "spec.template.spec", self.volumes_beside(spec))

    def volumes_beside(self, spec: dict[str, Any]) -> frozenset[str]:
        """Names of volumes that pods get though their template does not list them."""
        return frozenset()


class ReplicaSetStrategy(TemplateStrategy):
    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        obj["spec"].setdefault("replicas", 1)


class DeploymentStrategy(TemplateStrategy):
    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = super().validate(obj, old)
        strategy = obj["spec"]["strategy"]
        if strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
            text = "may not be specified when strategy `type` is 'Recreate'"
            found.append(errors.forbidden_field("spec.strategy.rollingUpdate", text))
        return found


class StatefulSetStrategy(TemplateStrategy):
    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("updateStrategy", {}).setdefault("type", "RollingUpdate")
        spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})

    def volumes_beside(self, spec: dict[str, Any]) -> frozenset[str]:
        return frozenset(claim["metadata"].get("name", "") for claim in spec.get("volumeClaimTemplates") or [])


class JobStrategy(Strategy):
    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        super().prepare_create(obj, resource)
        spec, meta = obj.setdefault("spec", {}), obj["metadata"]
        if not spec.get("manualSelector"):
            _own_selector(spec, meta.get("name", ""), meta["uid"])

    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("parallelism", 1)
        if spec.get("completions") is None and spec["parallelism"] == 1:
            spec["completions"] = 1
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
        template = spec.setdefault("template", {})
        default_pod_spec(template.setdefault("spec", {}))

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj["spec"]
        found = check_pod_spec(spec["template"]["spec"], "spec.template.spec")
        policy = spec["template"]["spec"].get("restartPolicy")
        if policy not in ("OnFailure", "Never"):
            path = "spec.template.spec.restartPolicy"
            found.append(errors.not_supported(path, policy, ["OnFailure", "Never"]))
        found += [
            errors.invalid(f"spec.{key}", spec[key], "must be greater than or equal to 0")
            for key in ("parallelism", "completions", "backoffLimit")
            if (spec.get(key) or 0) < 0
        ]
        found += [
            errors.forbidden_field(f"spec.{key}", "is not served here: nobody would act on it")
            for key in ("backoffLimitPerIndex", "podFailurePolicy", "successPolicy", "maxFailedIndexes")
            if spec.get(key) is not None
        ]
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
            found.append(errors.required("spec.completions", "when completion mode is Indexed"))
        if old is not None:
            found += [
                errors.invalid(f"spec.{key}", spec.get(key), "field is immutable")
                for key in ("template", "selector", "completionMode")
                if old["spec"].get(key) != spec.get(key)
            ]
        return found


def _own_selector(spec: dict[str, Any], name: str, uid: str) -> None:
    """The Job's uid marks its pods, under the old names and the new ones."""
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = uid
        labels.setdefault(f"{prefix}job-name", name)
    spec.setdefault("selector", {}).setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid


class CronJobStrategy(Strategy):
    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
        default_pod_spec(template.setdefault("spec", {}))

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        schedule = obj["spec"].get("schedule", "")
        if not schedule:
            return [errors.required("spec.schedule")]
        if len(schedule.split()) != 5 and not schedule.startswith("@"):
            text = f"expected exactly 5 fields, found {len(schedule.split())}: [{schedule}]"
            return [errors.invalid("spec.schedule", schedule, text)]
        return []


class ServiceStrategy(Strategy):
    """Services get a cluster address of their own, so that clients find one; nothing listens there."""

    check_name = staticmethod(is_label_1035)
    has_generation = False
    returns_deleted = True

    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        obj.setdefault("status", {"loadBalancer": {}})
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])
        if not spec.get("clusterIP"):
            name = f"{obj['metadata'].get('namespace')}/{obj['metadata'].get('name')}"
            chance = random.Random(name)  # the same service gets the same address
            spec["clusterIP"] = f"10.96.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"
        spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj["spec"]
        found: list[Cause] = []
        if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
            found.append(errors.required("spec.ports"))
        for index, port in enumerate(spec.get("ports") or []):
            if not 1 <= (port.get("port") or 0) <= 65535:
                text = "must be between 1 and 65535, inclusive"
                found.append(errors.invalid(f"spec.ports[{index}].port", port.get("port", 0), text))
            if len(spec["ports"]) > 1 and not port.get("name"):
                found.append(errors.required(f"spec.ports[{index}].name"))
        kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
        if spec["type"] not in kinds:
            found.append(errors.not_supported("spec.type", spec["type"], kinds))
        before = (old or {}).get("spec", {}).get("clusterIP")
        if before and spec.get("clusterIP") != before and spec["type"] != "ExternalName":
            found.append(errors.invalid("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set"))
        return found
