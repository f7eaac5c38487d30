"""CustomResourceDefinitions: checked, defaulted, accepted, served.

A CRD becomes one `Resource` per served version. The order matters to clients: paths, discovery and OpenAPI are served
before Established=True is published. Updates take effect at once, for stored objects too; deletion empties the pile
first.
"""

import hashlib
import json
import re
from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.crd_schema import check_schema, demand_shape
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.jsonpath import JsonPath
from matrixcontainer.kubeapi.object_meta import timestamp
from matrixcontainer.kubeapi.resources import Printed, Registry, Resource, ScalePaths
from matrixcontainer.kubeapi.schema import Schema
from matrixcontainer.kubeapi.selectors import field_reader
from matrixcontainer.kubeapi.strategy import (
    LABEL_1035,
    CustomStrategy,
    Strategy,
    is_label_1035,
    is_subdomain,
    keep_part,
)

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
GROUP = "apiextensions.k8s.io"
DNS_LABEL = LABEL_1035
VERSION_NAME = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")


class CrdStrategy(Strategy):
    """Checks and defaults of the CRD object itself."""

    def clean(self, obj: dict[str, Any], resource: Resource) -> list[str]:
        unknown = super().clean(obj, resource)
        for index, version in enumerate((obj.get("spec") or {}).get("versions") or []):
            document = (version.get("schema") or {}).get("openAPIV3Schema")
            if document is not None:
                demand_shape(document, f"spec.versions[{index}].schema.openAPIV3Schema")
        return unknown

    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")
        conversion = spec.setdefault("conversion", {})
        conversion.setdefault("strategy", "None")

    def prepare_create(self, obj: dict[str, Any], resource: Resource) -> None:
        obj["status"] = {
            "conditions": [],
            "acceptedNames": {"kind": "", "plural": ""},
            "storedVersions": [
                v.get("name", "") for v in obj.get("spec", {}).get("versions") or [] if v.get("storage")
            ],
        }

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: Resource) -> None:
        keep_part(new, old, "status")
        status = new.setdefault("status", {})
        stored = list(status.get("storedVersions") or [])
        for version in new.get("spec", {}).get("versions") or []:
            if version.get("storage") and version.get("name", "") not in stored:
                stored.append(version.get("name", ""))
        if stored != status.get("storedVersions"):
            new["status"] = status | {"storedVersions": stored}

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        if old is not None and old.get("spec") == obj.get("spec"):
            return []
        return check_crd(obj, old)


def check_crd(crd: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """Everything that keeps a CRD from being served."""
    spec = crd["spec"]
    names = spec.get("names") or {}
    found: list[Cause] = []
    group, plural = spec.get("group", ""), names.get("plural", "")
    if crd["metadata"].get("name") != f"{plural}.{group}":
        text = 'must be spec.names.plural+"."+spec.group'
        found.append(errors.invalid("metadata.name", crd["metadata"].get("name", ""), text))
    if not group:
        found.append(errors.required("spec.group"))
    elif why := is_subdomain(group):
        found.append(errors.invalid("spec.group", group, why))
    elif "." not in group:
        found.append(errors.invalid("spec.group", group, "should be a domain with at least one dot"))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        if not spec.get("scope"):
            found.append(errors.required("spec.scope"))
        else:
            found.append(errors.not_supported("spec.scope", spec["scope"], ["Cluster", "Namespaced"]))
    for key in ("plural", "kind"):
        if not names.get(key):
            found.append(errors.required(f"spec.names.{key}"))
        elif why := is_label_1035(names[key].lower()):
            found.append(errors.invalid(f"spec.names.{key}", names[key], why))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(errors.invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    if old is not None:
        for path, key in (("spec.group", "group"), ("spec.scope", "scope")):
            if old["spec"].get(key) != spec.get(key):
                found.append(errors.invalid(path, spec.get(key), "field is immutable"))
        if old["spec"]["names"].get("plural") != names.get("plural"):
            found.append(errors.invalid("spec.names.plural", names.get("plural"), "field is immutable"))
    found += [_hoisted(cause, spec) for cause in _check_versions(spec, crd)]
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") == "Webhook":
        found.append(errors.not_supported("spec.conversion.strategy", "Webhook", ["None"]))
    return found


HOISTED = (
    ("spec.versions[0].schema.openAPIV3Schema", "spec.validation.openAPIV3Schema"),
    ("spec.versions[0].subresources", "spec.subresources"),
    ("spec.versions[0].additionalPrinterColumns", "spec.additionalPrinterColumns"),
    ("spec.versions[0].selectableFields", "spec.selectableFields"),
)


def _hoisted(cause: Cause, spec: dict[str, Any]) -> Cause:
    """What all versions have in common is looked for at the top of the definition, and named there."""
    versions = spec.get("versions") or []
    parts = [{k: v for k, v in one.items() if k not in ("name", "served", "storage")} for one in versions]
    if any(part != parts[0] for part in parts):
        return cause
    for within, instead in HOISTED:
        if cause.field.startswith(within):
            field = instead + cause.field.removeprefix(within)
            if instead == "spec.additionalPrinterColumns":
                field = field.replace(".jsonPath", ".JSONPath")
            return Cause(cause.reason, cause.message.replace(within, instead), field)
    return cause


def _check_versions(spec: dict[str, Any], crd: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    versions = spec.get("versions") or []
    if not versions:
        return [errors.required("spec.versions", "must have at least one version")]
    seen = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if not VERSION_NAME.match(name):
            found.append(errors.invalid(f"{path}.name", name, "must be a DNS-1035 label"))
        if name in seen:
            found.append(errors.duplicate(f"{path}.name", name))
        seen.add(name)
        document = (version.get("schema") or {}).get("openAPIV3Schema")
        if document is None:
            found.append(errors.required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        else:
            found += check_schema(document, f"{path}.schema.openAPIV3Schema")
        found += _check_subresources(version, path)
        for place, field in enumerate(version.get("selectableFields") or []):
            if not re.match(r"^(\.[A-Za-z_][\w-]*)+$", field.get("jsonPath", "")):
                where = f"{path}.selectableFields[{place}].jsonPath"
                found.append(
                    errors.invalid(where, field.get("jsonPath", ""), "is an invalid path: must be a field path")
                )
        for place, printed in enumerate(version.get("additionalPrinterColumns") or []):
            where = f"{path}.additionalPrinterColumns[{place}]"
            found += [errors.required(f"{where}.{key}") for key in ("name", "jsonPath") if not printed.get(key)]
            kinds = ["boolean", "date", "integer", "number", "string"]
            if printed.get("type") not in kinds:
                text = f"must be one of {','.join(kinds)}"
                found.append(errors.invalid(f"{where}.type", printed.get("type", ""), text))
            try:
                JsonPath(printed.get("jsonPath", ""))
            except ValueError as failure:
                where = f"{path}.additionalPrinterColumns[{place}].jsonPath"
                found.append(errors.invalid(where, printed.get("jsonPath", ""), str(failure)))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(errors.invalid("spec.versions", [v.get("name") for v in versions], text))
    stored = (crd.get("status") or {}).get("storedVersions") or []
    found.extend(
        errors.invalid(
            f"status.storedVersions[{at}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions",
        )
        for at, name in enumerate(stored)
        if name not in seen
    )
    return found


def _check_subresources(version: dict[str, Any], path: str) -> list[Cause]:
    scale = (version.get("subresources") or {}).get("scale")
    found = []
    if scale is not None:
        for key, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
            value = scale.get(key, "")
            if not value:
                found.append(errors.required(f"{path}.subresources.scale.{key}"))
            elif not value.startswith(root):
                text = f"should be a json path under {root[:-1]}"
                found.append(errors.invalid(f"{path}.subresources.scale.{key}", value, text))
    return found


# ---- serving


def fingerprint(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def resources_of(crd: dict[str, Any], revision: int) -> list[Resource]:
    """A Resource per served version; objects written before `revision` are re-read through the present schema."""
    spec = crd["spec"]
    names = spec["names"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        document = version["schema"]["openAPIV3Schema"]
        sub = version.get("subresources") or {}
        scale = sub.get("scale")
        many = len([v for v in spec["versions"] if v.get("served")]) > 1
        found.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                schema=(compiled := Schema(document)),
                strategy=CustomStrategy(compiled),
                singular=names.get("singular", ""),
                list_kind=names.get("listKind", ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                custom=True,
                status="status" in sub,
                scale=ScalePaths(
                    scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
                )
                if scale
                else None,
                columns=tuple(_printed(column) for column in version.get("additionalPrinterColumns") or ()),
                storage_version=f"{spec['group']}/{storage_version}",
                document=document,
                fields={
                    field["jsonPath"].lstrip("."): field_reader(field["jsonPath"].lstrip("."))
                    for field in version.get("selectableFields") or ()
                },
                refresh_before=2**63 if many and version["name"] != storage_version else revision,
                fingerprint=fingerprint([version, names]),
                deprecated=(
                    version.get("deprecationWarning")
                    or f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
                )
                if version.get("deprecated")
                else "",
            )
        )
    return found


def _printed(column: dict[str, Any]) -> Printed:
    return Printed(
        column["name"],
        column.get("type", "string"),
        JsonPath(column["jsonPath"]),
        column.get("format", ""),
        column.get("description", ""),
        column.get("priority", 0),
    )


def name_conflict(crd: dict[str, Any], registry: Registry) -> tuple[str, str]:
    """(reason, message) when another resource of the group has one of the names; ("", "") when all are free."""
    spec = crd["spec"]
    names = spec["names"]
    taken = [r for r in registry.all() if r.group == spec["group"] and r.plural != names["plural"]]
    words = {r.plural for r in taken} | {r.singular for r in taken} | {s for r in taken for s in r.short_names}
    kinds = {r.kind for r in taken} | {r.list_kind for r in taken}
    if names["plural"] in words:
        return "PluralConflict", f'"{names["plural"]}" is already in use'
    if names.get("singular") in words:
        return "SingularConflict", f'"{names["singular"]}" is already in use'
    for short in names.get("shortNames") or ():
        if short in words:
            return "ShortNamesConflict", f'"{short}" is already in use'
    if names["kind"] in kinds:
        return "KindConflict", f'"{names["kind"]}" is already in use'
    if names.get("listKind") in kinds:
        return "ListKindConflict", f'"{names["listKind"]}" is already in use'
    return "", ""


def set_condition(status: dict[str, Any], kind: str, value: str, reason: str, message: str, now: float) -> None:
    """Set one condition in place; its transition time moves only when its status does."""
    conditions = status.setdefault("conditions", [])
    fresh = {"type": kind, "status": value, "lastTransitionTime": timestamp(now), "reason": reason, "message": message}
    for index, held in enumerate(conditions):
        if held["type"] == kind:
            if held["status"] == value:
                fresh["lastTransitionTime"] = held.get("lastTransitionTime", fresh["lastTransitionTime"])
            conditions[index] = fresh
            return
    conditions.append(fresh)


def accepted_names(crd: dict[str, Any]) -> dict[str, Any]:
    names = crd["spec"]["names"]
    wanted = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    return {key: names[key] for key in wanted if key in names}
