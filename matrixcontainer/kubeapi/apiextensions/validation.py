"""Everything that keeps a CustomResourceDefinition from being accepted, but for its schemas.

What all versions say alike (schema, subresources, columns, selectable fields) is looked for at the top of the
definition and named there, as the server's own form of a definition has it.
"""

import re
from typing import Any
from urllib.parse import urlsplit

import orjson

from matrixcontainer.kubeapi.apiextensions.schema_rules import check_schema
from matrixcontainer.kubeapi.builtin.webhooks import check_client
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause, Spelled, go_list
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.names import is_label_1035, is_subdomain

APPROVAL = "api-approved.kubernetes.io"
SEE_APPROVAL = "see https://github.com/kubernetes/enhancements/pull/1111"
COLUMN_TYPES = ["boolean", "date", "integer", "number", "string"]
COLUMN_FORMATS = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"]
SELECTABLE_MAX = 8
MISSING = (
    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
)
COMMON = {  # what moves to the top when all versions agree: key of a version, key at the top
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def check_crd(crd: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """All mistakes of a definition, and of its change from `old`."""
    spec = crd["spec"]
    names = spec.get("names") or {}
    found: list[Cause] = []
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if old is None and crd["metadata"].get("name", "") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        found.append(errors.invalid("metadata.name", crd["metadata"].get("name", ""), text))
    found += _check_spec(spec)
    if old is not None:
        found += _check_fixed(spec, old)
    status = crd.get("status") or {}
    found += check_names(status.get("acceptedNames") or {}, "status.acceptedNames")
    found += _check_stored(status.get("storedVersions") or [], spec.get("versions") or [])
    found += _check_approval(crd, old)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(errors.invalid("spec.preserveUnknownFields", True, text))
    return found


def _check_spec(spec: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    group = spec.get("group", "")
    if not group:
        found.append(errors.required("spec.group"))
    elif why := is_subdomain(group):
        found.append(errors.invalid("spec.group", group, why))
    elif "." not in group:
        found.append(errors.invalid("spec.group", group, "should be a domain with at least one dot"))
    if not spec.get("scope"):
        found.append(errors.required("spec.scope"))
    elif spec["scope"] not in ("Cluster", "Namespaced"):
        found.append(errors.not_supported("spec.scope", spec["scope"], ["Cluster", "Namespaced"]))
    if spec.get("preserveUnknownFields") and b'"default":' in orjson.dumps(spec.get("versions")):
        text = "must be false in order to use defaults in the schema"
        found.append(errors.invalid("spec.preserveUnknownFields", True, text))
    versions = [dict(version) for version in spec.get("versions") or []]
    common = _common(versions)
    found += _check_versions(versions, common, spec)
    names = spec.get("names") or {}
    found += [
        errors.required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not names.get(key)
    ]
    found += check_names(names, "spec.names")
    found += _check_parts(common, "spec", any(_has_status(one) for one in (common, *versions)), top=True)
    return found + _check_conversion(spec)


def _common(versions: list[dict[str, Any]]) -> dict[str, Any]:
    """Takes from the versions what they have in common; the keys are those of a version."""
    common: dict[str, Any] = {}
    for key in COMMON:
        reported = [version.get(key) or None if key != "schema" else version.get(key) for version in versions]
        if versions and all(one == reported[0] for one in reported):
            common[key] = reported[0]
            for version in versions:
                version.pop(key, None)
    return common


def _has_status(version: dict[str, Any]) -> bool:
    return "status" in (version.get("subresources") or {})


# ---- versions


def _check_versions(versions: list[dict[str, Any]], common: dict[str, Any], spec: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    if not (common.get("schema") or {}).get("openAPIV3Schema"):
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                where = f"spec.versions[{index}].schema.openAPIV3Schema"
                found.append(errors.required(where, "schemas are required"))
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if why := is_label_1035(name):
            found.append(errors.invalid(f"{path}.name", name, why))
        found += _check_deprecation(version, path)
        found += _check_parts(version, path, _has_status(common) or _has_status(version))
    names = [version.get("name", "") for version in versions]
    if len(set(names)) < len(names):
        found.append(errors.invalid("spec.versions", versions, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(errors.invalid("spec.versions", versions, text))
    if names and names[0] and (why := is_label_1035(names[0])):
        found.append(errors.invalid("spec.version", names[0], why))
    return found


def _check_deprecation(version: dict[str, Any], path: str) -> list[Cause]:
    reported = version.get("deprecationWarning")
    if reported is None:
        return []
    where = f"{path}.deprecationWarning"
    if not version.get("deprecated"):
        return [errors.invalid(where, reported, "can only be set for deprecated versions")]
    texts = []
    if len(reported.encode()) > 256:
        texts.append("must be <= 256 characters long")
    if not reported:
        texts.append("must not be an empty string")
    odd = next((place for place, letter in enumerate(reported) if not letter.isprintable()), None)
    if odd is not None:
        at = len(reported[:odd].encode())
        texts.append(f"must only contain printable UTF-8 characters; non-printable character found at index {at}")
    return [errors.invalid(where, reported, text) for text in texts]


# ---- what stands in a version or at the top


def _check_parts(part: dict[str, Any], path: str, with_status: bool, top: bool = False) -> list[Cause]:
    found: list[Cause] = []
    schema_path = f"{path}.validation.openAPIV3Schema" if top else f"{path}.schema.openAPIV3Schema"
    document = (part.get("schema") or {}).get("openAPIV3Schema")
    if document is not None:
        found += check_schema(document, schema_path, with_status)
    found += _check_scale((part.get("subresources") or {}).get("scale"), f"{path}.subresources.scale")
    for index, column in enumerate(part.get("additionalPrinterColumns") or []):
        found += _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    if fields := part.get("selectableFields"):
        if document is None:
            what = "validations.schema is included" if top else "version.schema.openAPIV3Schema is not included"
            found.append(
                errors.invalid(f"{path}.selectableFields", "", f"selectableFields may only be set when {what}")
            )
        else:
            found += _check_selectable(fields, document, f"{path}.selectableFields")
    return found


def _check_scale(scale: dict[str, Any] | None, path: str) -> list[Cause]:
    if scale is None:
        return []
    found: list[Cause] = []
    for key, roots, words in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        reported, where = scale.get(key) or "", f"{path}.{key}"
        if not reported:
            found += [] if key == "labelSelectorPath" else [errors.required(where)]
        elif not reported.startswith("."):
            found.append(errors.invalid(where, reported, "must be a simple json path starting with ."))
        elif not reported.startswith(roots):
            found.append(errors.invalid(where, reported, f"should be a json path under {words}"))
    return found


def _check_column(column: dict[str, Any], path: str) -> list[Cause]:
    found: list[Cause] = []
    reported = column.get("jsonPath") or ""
    if not column.get("name"):
        found.append(errors.required(f"{path}.name"))
    text = f"must be one of {','.join(COLUMN_TYPES)}"
    if not column.get("type"):
        found.append(errors.required(f"{path}.type", text))
    elif column["type"] not in COLUMN_TYPES:
        found.append(errors.invalid(f"{path}.type", column["type"], text))
    if column.get("format") and column["format"] not in COLUMN_FORMATS:
        text = f"must be one of {','.join(COLUMN_FORMATS)}"
        found.append(errors.invalid(f"{path}.format", column["format"], text))
    if not reported:
        found.append(errors.required(f"{path}.JSONPath"))
    elif not reported.startswith("."):
        found.append(errors.invalid(f"{path}.JSONPath", reported, "must be a simple json path starting with ."))
    else:
        try:  # upstream takes a broken path and then serves nothing of the version
            JsonPath(reported)
        except ValueError as failure:
            found.append(errors.invalid(f"{path}.JSONPath", reported, str(failure)))
    return found


def _check_selectable(fields: list[dict[str, Any]], document: dict[str, Any], path: str) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        reported, where = field.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not reported:
            found.append(errors.required(where))
            continue
        why, node = field_at(reported, document)
        if why:
            found.append(errors.invalid(where, reported, f"is an invalid path: {why}"))
            continue
        if reported.split(".")[1] == "metadata":
            found.append(errors.invalid(where, reported, "must not point to fields in metadata"))
        if node.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            found.append(errors.invalid(where, reported, text))
        if reported in seen:
            found.append(errors.duplicate(where, reported))
        seen.add(reported)
    if len(seen) > SELECTABLE_MAX:
        found.append(errors.too_many(path, len(seen), SELECTABLE_MAX))
    return found


def field_at(text: str, document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(why a path without brackets leads nowhere, "" when it does not; the schema it leads to)."""
    node = document
    tokens = re.findall(r"[.\[\]]|[^.\[\]]+", text)
    for place, token in enumerate(tokens):
        if token == "[":
            return "array notation is not allowed", {}
        if place % 2 == 0:
            if token != ".":
                return f"expected [ or . but got: {token}", {}
            if place + 1 == len(tokens):
                return "unexpected end of JSON path", {}
            continue
        properties, extra = node.get("properties"), node.get("additionalProperties")
        if properties is not None and token in properties:
            node = properties[token]
        elif properties is None and isinstance(extra, dict):
            node = extra
        else:
            return "does not refer to a valid field", {}
    return "", node


# ---- names


def check_names(names: dict[str, Any], path: str) -> list[Cause]:
    found = [
        errors.invalid(f"{path}.{key}", names[key], why)
        for key in ("plural", "singular")
        if names.get(key) and (why := is_label_1035(names[key]))
    ]
    for key in ("kind", "listKind"):
        if names.get(key) and (why := is_label_1035(names[key].lower())):
            text = f"may have mixed case, but should otherwise match: {why}"
            found.append(errors.invalid(f"{path}.{key}", names[key], text))
    found += [
        errors.invalid(f"{path}.{key}[{index}]", word, why)
        for key in ("shortNames", "categories")
        for index, word in enumerate(names.get(key) or [])
        if (why := is_label_1035(word))
    ]
    if names.get("kind") and names["kind"] == names.get("listKind"):
        found.append(errors.invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same"))
    return found


def _check_fixed(spec: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What a change may not touch; scope and kind only once objects may have been stored."""
    before = old["spec"]
    now, then = spec.get("names") or {}, before.get("names") or {}
    pairs = [("spec.group", spec.get("group"), before.get("group"))]
    pairs.append(("spec.names.plural", now.get("plural"), then.get("plural")))
    conditions = (old.get("status") or {}).get("conditions") or []
    if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        pairs.append(("spec.scope", spec.get("scope"), before.get("scope")))
        pairs.append(("spec.names.kind", now.get("kind"), then.get("kind")))
    return [
        errors.invalid(where, reported, "field is immutable")
        for where, reported, current in pairs
        if reported != current
    ]


def _check_stored(stored: list[str], versions: list[dict[str, Any]]) -> list[Cause]:
    path = "status.storedVersions"
    if not stored:
        return [errors.invalid(path, Spelled("[]string(nil)"), "must have at least one stored version")]
    shown = go_list(stored)
    found = [
        errors.invalid(path, shown, f"must have the storage version {version.get('name', '')}")
        for version in versions
        if version.get("storage") and version.get("name", "") not in stored
    ]
    current = {version.get("name", "") for version in versions}
    found += [
        errors.invalid(f"{path}[{index}]", name, MISSING.format(name=name))
        for index, name in enumerate(stored)
        if name not in current
    ]
    return found


# ---- approval and conversion


def _approval(crd: dict[str, Any]) -> str:
    reported = (crd["metadata"].get("annotations") or {}).get(APPROVAL, "")
    if not reported:
        return "missing"
    if reported.startswith("unapproved"):
        return "bypassed"
    parts = urlsplit(reported)
    return "approved" if parts.scheme and parts.netloc else "invalid"


def _check_approval(crd: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    group = crd["spec"].get("group", "")
    if not re.search(r"(^|\.)(k8s|kubernetes)\.io$", group):
        return []
    state, where = _approval(crd), f"metadata.annotations[{APPROVAL}]"
    if old is not None and _approval(old) == state:
        return []
    text = f'protected groups must have approval annotation "{APPROVAL}"'
    if state == "missing":
        return [errors.required(where, f"{text}, {SEE_APPROVAL}")]
    if state == "invalid":
        reported = crd["metadata"]["annotations"][APPROVAL]
        more = f'{text} with either a URL or a reason starting with "unapproved", {SEE_APPROVAL}'
        return [errors.invalid(where, reported, more)]
    return []


def _check_conversion(spec: dict[str, Any]) -> list[Cause]:
    reported = spec.get("conversion") or {}
    path, strategy, hook = "spec.conversion", reported.get("strategy", ""), reported.get("webhook") or {}
    client, versions = hook.get("clientConfig"), hook.get("conversionReviewVersions") or []
    if not strategy:
        return [errors.required(f"{path}.strategy")]
    if strategy not in ("None", "Webhook"):
        return [errors.not_supported(f"{path}.strategy", strategy, ["None", "Webhook"])]
    found: list[Cause] = []
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            found.append(errors.forbidden_field(f"{path}.webhookClientConfig", text))
        if versions:
            found.append(errors.forbidden_field(f"{path}.conversionReviewVersions", text))
        return found
    if client is None:
        found.append(errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        if service := client.get("service"):  # upstream takes the one for the other here
            swapped = {"name": service.get("namespace"), "namespace": service.get("name")}
            client = client | {"service": service | swapped}
        found += check_client(client, f"{path}.webhookClientConfig")
    found += _check_review_versions(versions, f"{path}.conversionReviewVersions")
    return found or [errors.not_supported(f"{path}.strategy", "Webhook", ["None"])]  # nobody converts here


def _check_review_versions(versions: list[str], path: str) -> list[Cause]:
    if not versions:
        return [errors.required(path)]
    found: list[Cause] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            found.append(errors.invalid(f"{path}[{index}]", version, "duplicate version"))
        elif why := is_label_1035(version):
            found.append(errors.invalid(f"{path}[{index}]", version, why))
    if not {"v1", "v1beta1"} & set(versions):
        shown = go_list(versions)
        found.append(errors.invalid(path, shown, "must include at least one of v1, v1beta1"))
    return found
