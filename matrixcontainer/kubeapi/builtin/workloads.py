"""Strategies of kinds with a pod template: rules beyond those of single structs."""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.builtin import validate_pods
from matrixcontainer.kubeapi.builtin.checks import Obj, enum, not_negative, required, rules
from matrixcontainer.kubeapi.builtin.disruption_budgets import validate_int_or_percent
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo

if TYPE_CHECKING:
    from collections.abc import Iterator


ENDS = ("OnFailure", "Never")


class TemplateStrategy(BuiltinStrategy):
    """Strategy of kinds with a pod selector and a pod template."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = super().validate(obj, old)
        spec = obj["spec"]
        template = spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        selector = spec.get("selector")
        if selector is None:
            causes.append(errors.required("spec.selector"))
        elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(errors.invalid("spec.selector", selector, "empty selector is invalid for deployment"))
        broken = any(cause.field.startswith("spec.selector.matchE") for cause in causes)
        if broken:
            causes.append(errors.invalid("spec.selector", selector or {}, "invalid label selector"))
        elif selector is None or not matches_label_selector(selector, labels):
            text = "`selector` does not match template `labels`"
            causes.append(errors.invalid("spec.template.metadata.labels", labels, text))
        if old is not None and old["spec"].get("selector") != selector:
            causes.append(errors.invalid("spec.selector", selector, "field is immutable"))
        return causes + self._check_template(template.get("spec") or {}, spec)

    def _check_template(self, pod: Obj, spec: Obj) -> list[Cause]:
        path = "spec.template.spec"
        claims = frozenset(claim["metadata"].get("name", "") for claim in spec.get("volumeClaimTemplates") or [])
        causes = validate_pods.validate_mounts(pod, path, extra_volumes=claims)
        if pod.get("restartPolicy") != "Always":
            causes.append(errors.not_supported(f"{path}.restartPolicy", pod.get("restartPolicy"), ["Always"]))
        return causes


class DeploymentStrategy(TemplateStrategy):
    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = super().validate(obj, old)
        spec = obj["spec"]
        strategy = spec["strategy"]
        if strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
            text = "may not be specified when strategy `type` is 'Recreate'"
            causes.append(errors.forbidden_field("spec.strategy.rollingUpdate", text))
        elif strategy["type"] not in ("Recreate", "RollingUpdate"):
            causes.append(errors.not_supported("spec.strategy", strategy, ["Recreate", "RollingUpdate"]))
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
            text = "must be greater than minReadySeconds"
            causes.append(errors.invalid("spec.progressDeadlineSeconds", deadline, text))
        return causes


def validate_rolling_update(value: Obj, path: str) -> "Iterator[Cause]":
    """maxUnavailable and maxSurge of a rolling update: not both zero."""
    missing, more = value.get("maxUnavailable"), value.get("maxSurge")
    for key, current in (("maxUnavailable", missing), ("maxSurge", more)):
        yield from (
            validate_int_or_percent(current, f"{path}.{key}")
            if key == "maxUnavailable"
            else _must_be_positive(current, f"{path}.{key}")
        )
    if _must_be_zero(missing) and _must_be_zero(more):
        yield errors.invalid(f"{path}.maxUnavailable", missing, "may not be 0 when `maxSurge` is 0")


def validate_daemon_update(value: Obj, path: str) -> "Iterator[Cause]":
    """maxUnavailable and maxSurge of a DaemonSet's rolling update: exactly one of them is not zero."""
    missing, more = value.get("maxUnavailable"), value.get("maxSurge")
    yield from validate_int_or_percent(missing, f"{path}.maxUnavailable")
    yield from validate_int_or_percent(more, f"{path}.maxSurge")
    if _must_be_zero(missing) and _must_be_zero(more):
        yield errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
    elif not _must_be_zero(missing) and not _must_be_zero(more):
        yield errors.invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")


def _must_be_positive(current: int | str | None, path: str) -> "Iterator[Cause]":
    """As `validate_int_or_percent`, but more than 100% is allowed."""
    return (cause for cause in validate_int_or_percent(current, path) if "100%" not in cause.message)


def _must_be_zero(current: int | str | None) -> bool:
    return str(current).removesuffix("%") == "0"


COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
for _kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
    rules(f"apps.v1.{_kind}Spec", not_negative(*COUNTS))
rules("core.v1.ReplicationControllerSpec", not_negative(*COUNTS))
rules("apps.v1.RollingUpdateDeployment", validate_rolling_update)
rules("apps.v1.RollingUpdateDaemonSet", validate_daemon_update)
rules("apps.v1.DaemonSetUpdateStrategy", enum("type", "RollingUpdate", "OnDelete"))


# ---- jobs

JOB_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
IGNORED_FIELDS = ("backoffLimitPerIndex", "podFailurePolicy", "successPolicy", "maxFailedIndexes")


def check_job(spec: Obj, path: str) -> list[Cause]:
    """Errors of a Job spec."""
    pod = (spec.get("template") or {}).get("spec") or {}
    causes = validate_pods.validate_mounts(pod, f"{path}.template.spec")
    policy, where = pod.get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if policy in ("Always", "", None):
        causes.append(errors.required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in ENDS:
        causes.append(errors.not_supported(where, policy, list(ENDS)))
    causes += [
        errors.forbidden_field(f"{path}.{key}", "is not supported: no controller here acts on it")
        for key in IGNORED_FIELDS
        if spec.get(key) is not None
    ]
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        causes.append(errors.required(f"{path}.completions", "when completion mode is Indexed"))
    return causes


rules("batch.v1.JobSpec", not_negative(*JOB_COUNTS), enum("completionMode", "NonIndexed", "Indexed"))


class JobStrategy(BuiltinStrategy):
    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        super().prepare_create(obj, resource)
        spec, meta = obj.setdefault("spec", {}), obj["metadata"]
        if not spec.get("manualSelector"):
            _own_selector(spec, meta.get("name", ""), meta["uid"])

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj["spec"]
        causes = super().validate(obj, old) + check_job(spec, "spec") + _check_own_selector(spec)
        if old is not None:
            causes *= 2  # reported twice, as upstream runs the rules for both creation and update
            waiting = old["spec"].get("suspend") and not (old.get("status") or {}).get("startTime")
            before, after = (_template(one, bool(waiting)) for one in (old, obj))
            changed = ["template"] if before != after else []
            changed += [key for key in ("selector", "completionMode") if old["spec"].get(key) != spec.get(key)]
            causes += [errors.invalid(f"spec.{key}", spec.get(key), "field is immutable") for key in changed]
        return causes


DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def _template(job: Obj, waiting: bool) -> Obj:
    """The immutable part of a Job's template; a suspended Job that never started may change scheduling directives."""
    current = job["spec"].get("template") or {}
    if not waiting:
        return current
    spec = {key: value for key, value in (current.get("spec") or {}).items() if key not in DIRECTIVES}
    meta = {
        key: value for key, value in (current.get("metadata") or {}).items() if key not in ("labels", "annotations")
    }
    return {"metadata": meta, "spec": spec}


def _check_own_selector(spec: Obj) -> list[Cause]:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    causes = [] if selector is not None else [errors.required("spec.selector")]
    if not matches_label_selector(selector, labels):
        text = "`selector` does not match template `labels`"
        causes.append(errors.invalid("spec.template.metadata.labels", labels, text))
    return causes


def _own_selector(spec: dict[str, Any], name: str, uid: str) -> None:
    """Set the Job's selector and its pods' labels from its uid, with both legacy and current label names."""
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = uid
        labels.setdefault(f"{prefix}job-name", name)
    selector = spec.get("selector") or {}
    spec["selector"] = selector
    selector.setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid


rules(
    "batch.v1.CronJobSpec",
    required("schedule"),
    enum("concurrencyPolicy", "Allow", "Forbid", "Replace", required=True),
    not_negative("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
)
