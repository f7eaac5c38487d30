"""Rules of the small core kinds: Namespace, ConfigMap, Secret, ServiceAccount, Node, Lease, PriorityClass."""

import base64
import re
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.strategy import Strategy, is_label, keep_part

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource

DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
DATA_BYTES_MAX = 1024 * 1024
CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IMMUTABLE_NAMESPACES = ("default", "kube-system", "kube-public")


class NamespaceStrategy(Strategy):
    check_name = staticmethod(is_label)
    has_generation = False
    tells_grace = False
    returns_deleted = True

    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        obj["status"] = {"phase": "Active"}
        spec = obj.get("spec") or {}
        finalizers = spec.get("finalizers") or []
        obj["spec"] = spec | {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        self._label(obj)

    def default(self, obj: dict[str, Any]) -> None:
        self._label(obj)

    def _label(self, obj: dict[str, Any]) -> None:
        if name := obj["metadata"].get("name"):
            labels = obj["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = name

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: "Resource") -> None:
        keep_part(new, old, "status")
        keep_part(new, old, "spec")

    def mark_deleted(self, obj: dict[str, Any]) -> None:
        obj["status"] = obj.get("status", {}) | {"phase": "Terminating"}


def _check_data(obj: dict[str, Any], parts: tuple[str, ...]) -> list[Cause]:
    found = []
    total = 0
    for part in parts:
        for key, value in (obj.get(part) or {}).items():
            total += len(value)
            if not DATA_KEY.match(key) or len(key) > 253:
                found.append(errors.invalid(f"{part}[{key}]", key, CONFIG_KEY_TEXT))
    if total > DATA_BYTES_MAX:
        found.append(errors.too_long("", DATA_BYTES_MAX))
    return found


def _check_immutable(obj: dict[str, Any], old: dict[str, Any] | None, parts: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    found = []
    if not obj.get("immutable"):
        found.append(errors.forbidden_field("immutable", "field is immutable when `immutable` is set"))
    found += [
        errors.forbidden_field(part, "field is immutable when `immutable` is set")
        for part in parts
        if (obj.get(part) or {}) != (old.get(part) or {})
    ]
    return found


class ConfigMapStrategy(Strategy):
    has_generation = False

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        parts = ("data", "binaryData")
        both = set(obj.get("data") or {}) & set(obj.get("binaryData") or {})
        found = [errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in sorted(both)]
        return found + _check_data(obj, parts) + _check_immutable(obj, old, parts)


class SecretStrategy(Strategy):
    has_generation = False

    def default(self, obj: dict[str, Any]) -> None:
        plain = obj.pop("stringData", None)
        if plain:
            data = obj.setdefault("data", {})
            for key, value in plain.items():
                data[key] = base64.b64encode(value.encode()).decode()
        obj.setdefault("type", "Opaque")

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = _check_data(obj, ("data",)) + _check_immutable(obj, old, ("data",))
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except ValueError:
                raise errors.bad_request(
                    f'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at data.{key}'
                ) from None
        if old is not None and old.get("type") != obj.get("type"):
            found.append(errors.invalid("type", obj.get("type"), "field is immutable"))
        wanted = {"kubernetes.io/tls": ("tls.crt", "tls.key"), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",)}
        for key in wanted.get(obj.get("type", ""), ()):
            if key not in (obj.get("data") or {}):
                found.append(errors.required(f"data[{key}]"))
        return found


class ServiceAccountStrategy(Strategy):
    has_generation = False


class NodeStrategy(Strategy):
    has_generation = False

    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        """A node may bring its status along: kubelets register themselves that way."""

    def default(self, obj: dict[str, Any]) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = dict(status["capacity"])

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = []
        seen = set()
        for index, taint in enumerate(obj.get("spec", {}).get("taints") or []):
            path = f"spec.taints[{index}]"
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                allowed = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
                found.append(errors.not_supported(f"{path}.effect", taint.get("effect", ""), allowed))
            identity = (taint.get("key"), taint.get("effect"))
            if identity in seen:
                found.append(errors.duplicate(path, taint))
            seen.add(identity)
        before = (old or {}).get("spec", {}).get("providerID")
        if before and before != obj["spec"].get("providerID"):
            found.append(errors.forbidden_field("spec.providerID", "node updates may not change a set providerID"))
        return found


class LeaseStrategy(Strategy):
    has_generation = False
    create_on_update = True

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj.get("spec") or {}
        found = []
        if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
            found.append(
                errors.invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
            )
        if spec.get("leaseTransitions", 0) < 0:
            text = "must be greater than or equal to 0"
            found.append(errors.invalid("spec.leaseTransitions", spec["leaseTransitions"], text))
        return found


class PriorityClassStrategy(Strategy):
    has_generation = True

    def default(self, obj: dict[str, Any]) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = []
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        if value > 1_000_000_000 and not name.startswith("system-"):
            text = "maximum allowed value of a user defined priority is 1000000000"
            found.append(errors.forbidden_field("value", text))
        if old is not None and old.get("value", 0) != value:
            found.append(errors.forbidden_field("value", "may not be changed in an update."))
        return found
