"""Strategies of Namespace, ConfigMap, Secret, ServiceAccount, Node, Lease and PriorityClass."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import enum, not_negative, required, rules, text_checks
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.builtin.validate_pods import EFFECTS, PREEMPTION
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import label_error
from matrixcontainer.kubeapi.meta.qualified_names import qualified_name_error
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo, restore_field

DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
DATA_BYTES_MAX = 1024 * 1024
CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IMMUTABLE_NAMESPACES = ("default", "kube-system", "kube-public")


class NamespaceStrategy(BuiltinStrategy):
    check_name = staticmethod(label_error)
    has_generation = False
    sets_grace_period = False
    returns_deleted = True

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        obj["status"] = {"phase": "Active"}
        spec = obj.get("spec") or {}
        finalizers = spec.get("finalizers") or []
        obj["spec"] = spec | {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        self._label(obj)

    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        self._label(obj)

    def _label(self, obj: dict[str, Any]) -> None:
        if name := obj["metadata"].get("name"):
            labels = obj["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = name

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        restore_field(new, old, "status")
        restore_field(new, old, "spec")

    def mark_deleted(self, obj: dict[str, Any]) -> None:
        obj["status"] = obj.get("status", {}) | {"phase": "Terminating"}


def _check_data(obj: dict[str, Any], parts: tuple[str, ...]) -> list[Cause]:
    causes = []
    total = 0
    for part in parts:
        for key, value in (obj.get(part) or {}).items():
            total += len(value)
            if not DATA_KEY.fullmatch(key) or len(key) > 253:
                causes.append(errors.invalid(f"{part}[{key}]", key, CONFIG_KEY_TEXT))
    if total > DATA_BYTES_MAX:
        causes.append(errors.too_long("", DATA_BYTES_MAX))
    return causes


def _check_immutable(obj: dict[str, Any], old: dict[str, Any] | None, parts: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    causes = []
    if not obj.get("immutable"):
        causes.append(errors.forbidden_field("immutable", "field is immutable when `immutable` is set"))
    causes += [
        errors.forbidden_field(part, "field is immutable when `immutable` is set")
        for part in parts
        if (obj.get(part) or {}) != (old.get(part) or {})
    ]
    return causes


class ConfigMapStrategy(BuiltinStrategy):
    has_generation = False
    validates_metadata_twice = True

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        parts = ("data", "binaryData")
        both = set(obj.get("data") or {}) & set(obj.get("binaryData") or {})
        causes = [errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in sorted(both)]
        return causes + _check_data(obj, parts) + _check_immutable(obj, old, parts)


class SecretStrategy(BuiltinStrategy):
    has_generation = False
    validates_metadata_twice = True

    def default(self, obj: dict[str, Any]) -> None:
        plain = obj.pop("stringData", None)
        if plain:
            data = obj.setdefault("data", {})
            for key, value in plain.items():
                data[key] = base64.b64encode(value.encode()).decode()
        super().default(obj)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = super().validate(obj, old) + _check_data(obj, ("data",)) + _check_immutable(obj, old, ("data",))
        if old is not None and old.get("type") != obj.get("type"):
            causes.append(errors.invalid("type", obj.get("type"), "field is immutable"))
        wanted = {"kubernetes.io/tls": ("tls.crt", "tls.key"), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",)}
        for key in wanted.get(obj.get("type", ""), ()):
            if key not in (obj.get("data") or {}):
                causes.append(errors.required(f"data[{key}]"))
        return causes


class ServiceAccountStrategy(BuiltinStrategy):
    has_generation = False
    validates_metadata_twice = True
    returns_deleted = True


class NodeStrategy(BuiltinStrategy):
    has_generation = False

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        """Add the not-ready taint, as upstream. A node may be created with its status, as kubelets do."""
        taints = obj["spec"].get("taints") or []
        if not any((taint.get("key"), taint.get("effect")) == NOT_READY for taint in taints):
            obj["spec"]["taints"] = [*taints, {"key": NOT_READY[0], "effect": NOT_READY[1]}]

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = [
            replace(cause, field=TAINTS.sub("metadata.taints", cause.field)) for cause in super().validate(obj, old)
        ]
        seen = set()
        for index, taint in enumerate(obj["spec"].get("taints") or []):
            identity = (taint.get("key"), taint.get("effect"))
            if identity in seen:
                causes.append(errors.duplicate(f"metadata.taints[{index}]", taint))
            seen.add(identity)
        before = (old or {}).get("spec", {}).get("providerID")
        if before and before != obj["spec"].get("providerID"):
            causes.append(errors.forbidden_field("spec.providerID", "node updates may not change a set providerID"))
        return causes


rules(
    "core.v1.Taint", required("key"), text_checks("key", qualified_name_error), enum("effect", *EFFECTS, required=True)
)


class LeaseStrategy(BuiltinStrategy):
    has_generation = False
    unconditional_update = False
    create_on_update = True


def validate_lease(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    if (duration := spec.get("leaseDurationSeconds", 1)) <= 0:
        yield errors.invalid(f"{path}.leaseDurationSeconds", duration, "must be greater than 0")


rules("coordination.v1.LeaseSpec", validate_lease, not_negative("leaseTransitions"))


class PriorityClassStrategy(BuiltinStrategy):
    has_generation = True

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        causes = super().validate(obj, old)
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        if name.startswith("system-") and old is None:
            if SYSTEM_PRIORITIES.get(name) != value:
                known = "is not a known system priority class"
                if name in SYSTEM_PRIORITIES:
                    known = f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
                text = "priority class names with 'system-' prefix are reserved for system use only. error: "
                text += known if name in SYSTEM_PRIORITIES else f"{name} {known}"
                causes.append(errors.forbidden_field("metadata.name", text))
        elif value > 1_000_000_000 and not name.startswith("system-"):
            text = "maximum allowed value of a user defined priority is 1000000000"
            causes.append(errors.forbidden_field("value", text))
        if old is not None and value != old.get("value", 0):
            causes.append(errors.forbidden_field("value", "may not be changed in an update."))
        if old is not None and obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            causes.append(errors.invalid("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable"))
        return causes


rules("scheduling.v1.PriorityClass", enum("preemptionPolicy", *PREEMPTION))

TAINTS = re.compile("^spec.taints")  # upstream reports their path so
NOT_READY = ("node.kubernetes.io/not-ready", "NoSchedule")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
