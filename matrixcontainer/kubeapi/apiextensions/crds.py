"""CustomResourceDefinitions: strategy, name acceptance, and the resources that they define.

A CRD becomes one `Resource` per served version, under its accepted names. Clients rely on the order: paths, discovery
and OpenAPI are served before Established=True is published. Updates take effect immediately, also for stored objects;
deletion deletes the objects first.
"""

import hashlib
import json
from typing import Any

from matrixcontainer.kubeapi.apiextensions.decode import require_types
from matrixcontainer.kubeapi.apiextensions.strategy import CustomStrategy
from matrixcontainer.kubeapi.apiextensions.validation import validate_crd, validate_names
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.selectors import field_reader
from matrixcontainer.kubeapi.registry.resource import PrinterColumn, Registry, Resource, ScalePaths, version_rank
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo, restore_field
from matrixcontainer.kubeapi.schema.structural import Schema, same_json

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
GROUP = "apiextensions.k8s.io"


class CrdStrategy(BuiltinStrategy):
    """Validation and defaults of the CRD object itself."""

    def clean(self, obj: dict[str, Any], resource: ResourceInfo) -> list[str]:
        unknown = super().clean(obj, resource)
        for index, version in enumerate((obj.get("spec") or {}).get("versions") or []):
            document = (version.get("schema") or {}).get("openAPIV3Schema")
            if document is not None:
                require_types(document, f"spec.versions[{index}].schema.openAPIV3Schema", unknown)
        return unknown

    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind") or ""
        names["singular"] = names.get("singular") or kind.lower()
        if kind:
            names["listKind"] = names.get("listKind") or f"{kind}List"
        spec["conversion"] = {"strategy": "None"} if spec.get("conversion") is None else spec["conversion"]

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        obj["status"] = {
            "conditions": None,  # Go serialises the unset field as null
            "acceptedNames": {"kind": "", "plural": ""},
            "storedVersions": [
                v.get("name", "") for v in obj.get("spec", {}).get("versions") or [] if v.get("storage")
            ][:1],
        }

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        restore_field(new, old, "status")
        status = new.setdefault("status", {})
        stored = list(status.get("storedVersions") or [])
        for version in new.get("spec", {}).get("versions") or []:
            if version.get("storage") and version.get("name", "") not in stored:
                stored.append(version.get("name", ""))
        if stored != status.get("storedVersions"):
            new["status"] = status | {"storedVersions": stored}

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        if old is not None and same_json(old.get("spec"), obj.get("spec")):
            return []
        return validate_crd(obj, old)

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        return validate_names((obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames")


# ---- serving


def fingerprint(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def served_resources(crd: dict[str, Any], revision: int) -> list[Resource]:
    """A Resource per served version; objects written before `revision` are pruned and defaulted again when read."""
    return [_build_resource(crd, version, revision) for version in crd["spec"]["versions"] if version.get("served")]


def stored_resource(crd: dict[str, Any], revision: int) -> Resource:
    """The Resource of the storage version, served or not; enough to delete the objects."""
    return next(
        _build_resource(crd, version, revision) for version in crd["spec"]["versions"] if version.get("storage")
    )


def _build_resource(crd: dict[str, Any], version: dict[str, Any], revision: int) -> Resource:
    spec, document = crd["spec"], version["schema"]["openAPIV3Schema"]
    accepted = (crd.get("status") or {}).get("acceptedNames") or {}
    names = accepted if accepted.get("kind") else spec["names"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    sub = version.get("subresources") or {}
    paths = _scale_paths(sub.get("scale"))
    plural = len([v for v in spec["versions"] if v.get("served")]) > 1
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=(compiled := Schema(document)),
        strategy=CustomStrategy(compiled, paths),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        custom=True,
        status="status" in sub,
        scale=paths,
        columns=tuple(_printer_column(column) for column in version.get("additionalPrinterColumns") or ()),
        storage_version=f"{spec['group']}/{storage_version}",
        document=document,
        fields={
            field["jsonPath"].lstrip("."): field_reader(field["jsonPath"].lstrip("."))
            for field in version.get("selectableFields") or ()
        },
        refresh_before=2**63 if plural and version["name"] != storage_version else revision,
        fingerprint=fingerprint([version, names]),
        deprecated=_deprecation(version, spec),
    )


def _scale_paths(scale: dict[str, Any] | None) -> ScalePaths | None:
    if not scale:
        return None
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))


def _deprecation(version: dict[str, Any], spec: dict[str, Any]) -> str:
    """The warning for clients of a deprecated version, naming the best newer version if there is one."""
    if not version.get("deprecated"):
        return ""
    if warning := version.get("deprecationWarning"):
        return str(warning)
    group, kind, rank = spec["group"], spec["names"]["kind"], version_rank(version["name"])
    replacement = [one["name"] for one in spec["versions"] if one.get("served") and not one.get("deprecated")]
    replacement = sorted((name for name in replacement if version_rank(name) < rank), key=version_rank)
    text = f"{group}/{version['name']} {kind} is deprecated"
    return f"{text}; use {group}/{replacement[0]} {kind}" if replacement else text


def _printer_column(column: dict[str, Any]) -> PrinterColumn:
    return PrinterColumn(
        column["name"],
        column.get("type", "string"),
        JsonPath(column["jsonPath"]),
        column.get("format", ""),
        column.get("description", ""),
        column.get("priority", 0),
    )


def accepted_names(crd: dict[str, Any], registry: Registry) -> tuple[dict[str, Any], str, str]:
    """(accepted names, reason, message); reason and message are "" if no name conflicts with another resource."""
    spec = crd["spec"]
    names = spec["names"]
    accepted = dict((crd.get("status") or {}).get("acceptedNames") or {})
    taken = [r for r in registry.all() if r.group == spec["group"] and (r.plural != names["plural"] or not r.custom)]
    used_names = {r.plural for r in taken} | {r.singular for r in taken} | {s for r in taken for s in r.short_names}
    kinds = {r.kind for r in taken} | {r.list_kind for r in taken}
    reason = message = ""
    for key, used in (
        ("plural", used_names), ("singular", used_names), ("shortNames", used_names),
        ("kind", kinds), ("listKind", kinds),
    ):  # fmt: skip
        requested, current = names.get(key), accepted.get(key)
        asked = requested or [] if isinstance(requested, list) else [requested]
        clashes = [
            name for name in asked if name in used and name not in (current or [] if key == "shortNames" else [current])
        ]
        if clashes:
            reason = f"{key[0].upper()}{key[1:]}Conflict"
            texts = [f'"{name}" is already in use' for name in clashes]
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif requested:
            accepted[key] = requested
        else:
            accepted.pop(key, None)
    if names.get("categories"):
        accepted["categories"] = names["categories"]
    else:
        accepted.pop("categories", None)
    return {"plural": "", "kind": ""} | accepted, reason, message
