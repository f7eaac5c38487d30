"""Validation of CustomResourceDefinitions, except for their schemas."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from matrixcontainer.kubeapi.apiextensions.schema_rules import validate_schema
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.names import label_1035_error, subdomain_error

APPROVAL = "api-approved.kubernetes.io"
COLUMN_TYPES = ["boolean", "date", "integer", "number", "string"]
COLUMN_FORMATS = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"]
SELECTABLE_MAX = 8
SCALE_PATHS = (  # key, allowed prefixes, whether it is required
    ("specReplicasPath", (".spec.",), True),
    ("statusReplicasPath", (".status.",), True),
    ("labelSelectorPath", (".spec.", ".status."), False),
)
MISSING = (
    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
)


def validate_crd(crd: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """All errors in a definition and in its change from `old`."""
    spec, status = crd["spec"], crd.get("status") or {}
    names, name = spec.get("names") or {}, crd["metadata"].get("name", "")
    causes: list[Cause] = []
    if old is None and name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        causes.append(errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    causes += _check_spec(spec)
    if old is not None:
        causes += _check_immutable(spec, old)
    causes += validate_names(status.get("acceptedNames") or {}, "status.acceptedNames")
    causes += _check_stored_versions(status.get("storedVersions") or [], spec.get("versions") or [])
    causes += _check_approval(crd, old)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        causes.append(errors.invalid("spec.preserveUnknownFields", True, text))
    return causes


def _check_spec(spec: dict[str, Any]) -> Iterator[Cause]:
    group, names = spec.get("group", ""), spec.get("names") or {}
    if not group:
        yield errors.required("spec.group")
    elif message := subdomain_error(group) or ("" if "." in group else "should be a domain with at least one dot"):
        yield errors.invalid("spec.group", group, message)
    if not spec.get("scope"):
        yield errors.required("spec.scope")
    elif spec["scope"] not in ("Cluster", "Namespaced"):
        yield errors.not_supported("spec.scope", spec["scope"], ["Cluster", "Namespaced"])
    for key in ("plural", "singular", "kind", "listKind"):
        if not names.get(key):
            yield errors.required(f"spec.names.{key}")
    yield from validate_names(names, "spec.names")
    yield from _check_versions(spec.get("versions") or [])
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "None":  # conversion webhooks are not supported
        yield errors.not_supported("spec.conversion.strategy", conversion.get("strategy", ""), ["None"])
    elif conversion.get("webhook"):
        yield errors.forbidden_field("spec.conversion.webhook", "should not be set when strategy is None")


# ---- versions


def _check_versions(versions: list[dict[str, Any]]) -> Iterator[Cause]:
    names = [version.get("name", "") for version in versions]
    if len(set(names)) < len(names):
        yield errors.invalid("spec.versions", names, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield errors.invalid("spec.versions", names, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        path, warning = f"spec.versions[{index}]", version.get("deprecationWarning")
        if message := label_1035_error(version.get("name", "")):
            yield errors.invalid(f"{path}.name", version.get("name", ""), message)
        if warning is not None and not (
            version.get("deprecated") and 0 < len(warning) <= 256 and warning.isprintable()
        ):
            message = "can only be set for deprecated versions, in 1 to 256 printable characters"
            yield errors.invalid(f"{path}.deprecationWarning", warning, message)
        yield from _check_version(version, path)


def _check_version(version: dict[str, Any], path: str) -> Iterator[Cause]:
    subresources = version.get("subresources") or {}
    where = f"{path}.schema.openAPIV3Schema"
    document = (version.get("schema") or {}).get("openAPIV3Schema")
    if not document:
        yield errors.required(where, "schemas are required")
    else:
        yield from validate_schema(document, where, "status" in subresources)
    if (scale := subresources.get("scale")) is not None:
        for key, roots, needed in SCALE_PATHS:
            specified, where = scale.get(key) or "", f"{path}.subresources.scale.{key}"
            if not specified and needed:
                yield errors.required(where)
            elif specified and not specified.startswith(roots):
                message = f"should be a simple json path under {' or '.join(root.rstrip('.') for root in roots)}"
                yield errors.invalid(where, specified, message)
            elif specified and (message := _no_field_path(specified)):
                yield errors.invalid(where, specified, message)
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        yield from _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    yield from _check_selectable(version.get("selectableFields") or [], document or {}, f"{path}.selectableFields")


def _no_field_path(text: str) -> str:
    """Why a replica count cannot be read and written at this path; empty if it can."""
    try:
        JsonPath(text).keys()
    except ValueError as failure:
        return str(failure)
    return ""


def _check_column(column: dict[str, Any], path: str) -> Iterator[Cause]:
    specified = column.get("jsonPath") or ""
    if not column.get("name"):
        yield errors.required(f"{path}.name")
    for key, allowed, needed in (("type", COLUMN_TYPES, True), ("format", COLUMN_FORMATS, False)):
        text = f"must be one of {','.join(allowed)}"
        if not column.get(key):
            yield from [errors.required(f"{path}.{key}", text)] if needed else []
        elif column[key] not in allowed:
            yield errors.invalid(f"{path}.{key}", column[key], text)
    if not specified:
        yield errors.required(f"{path}.jsonPath")
    elif not specified.startswith("."):
        yield errors.invalid(f"{path}.jsonPath", specified, "must be a simple json path starting with .")
    else:
        try:  # upstream accepts an invalid path and then fails to serve the version
            JsonPath(specified)
        except ValueError as failure:
            yield errors.invalid(f"{path}.jsonPath", specified, str(failure))


def _check_selectable(fields: list[dict[str, Any]], document: dict[str, Any], path: str) -> Iterator[Cause]:
    if len(fields) > SELECTABLE_MAX:
        yield errors.too_many(path, len(fields), SELECTABLE_MAX)
    specified = [field.get("jsonPath") or "" for field in fields]
    for index, text in enumerate(specified):
        where = f"{path}[{index}].jsonPath"
        node = field_at(text, document)
        if not text:
            yield errors.required(where)
        elif node is None:
            yield errors.invalid(where, text, "is an invalid path: does not refer to a valid field")
        elif text.startswith(".metadata."):
            yield errors.invalid(where, text, "must not point to fields in metadata")
        elif node.get("type") not in ("string", "boolean", "integer"):
            yield errors.invalid(where, text, "must point to a field of type string, boolean or integer")
        elif text in specified[:index]:
            yield errors.duplicate(where, text)


def field_at(path: str, document: dict[str, Any]) -> dict[str, Any] | None:
    """The schema at a path of field names; None if there is none."""
    node: Any = document if path.startswith(".") else None
    for name in path.split(".")[1:] if node else ():
        extra = node.get("additionalProperties")
        node = (node.get("properties") or {}).get(name) or (extra if "properties" not in node else None)
        if not isinstance(node, dict):
            return None
    return node


# ---- names


def validate_names(names: dict[str, Any], path: str) -> list[Cause]:
    causes = [
        errors.invalid(f"{path}.{key}", names[key], message)
        for key in ("plural", "singular")
        if names.get(key) and (message := label_1035_error(names[key]))
    ]
    for key in ("kind", "listKind"):
        if names.get(key) and (message := label_1035_error(names[key].lower())):
            text = f"may have mixed case, but should otherwise match: {message}"
            causes.append(errors.invalid(f"{path}.{key}", names[key], text))
    causes += [
        errors.invalid(f"{path}.{key}[{index}]", word, message)
        for key in ("shortNames", "categories")
        for index, word in enumerate(names.get(key) or [])
        if (message := label_1035_error(word))
    ]
    if names.get("kind") and names["kind"] == names.get("listKind"):
        causes.append(errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same"))
    return causes


def _check_immutable(spec: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Errors for changed immutable fields; scope and kind are immutable once the CRD is Established."""
    before = old["spec"]
    now, then = spec.get("names") or {}, before.get("names") or {}
    pairs = [("spec.group", spec.get("group"), before.get("group"))]
    pairs.append(("spec.names.plural", now.get("plural"), then.get("plural")))
    conditions = (old.get("status") or {}).get("conditions") or []
    if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        pairs.append(("spec.scope", spec.get("scope"), before.get("scope")))
        pairs.append(("spec.names.kind", now.get("kind"), then.get("kind")))
    return [
        errors.invalid(where, specified, "field is immutable")
        for where, specified, current in pairs
        if specified != current
    ]


def _check_stored_versions(stored: list[str], versions: list[dict[str, Any]]) -> list[Cause]:
    path = "status.storedVersions"
    if not stored:
        return [errors.invalid(path, [], "must have at least one stored version")]
    current = {version.get("name", ""): bool(version.get("storage")) for version in versions}
    causes = [
        errors.invalid(path, stored, f"must have the storage version {name}")
        for name, storage in current.items()
        if storage and name not in stored
    ]
    return causes + [
        errors.invalid(f"{path}[{index}]", name, MISSING.format(name=name))
        for index, name in enumerate(stored)
        if name not in current
    ]


def _check_approval(crd: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """Groups of the Kubernetes project require an approval annotation, or one that states there is no approval."""

    def approved(one: dict[str, Any]) -> bool:
        specified = (one["metadata"].get("annotations") or {}).get(APPROVAL, "")
        return specified.startswith("unapproved") or bool(urlsplit(specified).scheme and urlsplit(specified).netloc)

    protected = re.search(r"(^|\.)(k8s|kubernetes)\.io$", crd["spec"].get("group", ""))
    if not protected or approved(crd) or (old is not None and not approved(old)):
        return []
    text = f'protected groups must have approval annotation "{APPROVAL}": a URL or a reason starting with "unapproved"'
    return [errors.required(f"metadata.annotations[{APPROVAL}]", text)]
