"""What all CRDs share: the CustomResourceDefinition envelope, names, printer columns and the common status fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.resource_model import ApiModel, Condition
from matrixcontainer.operator.schemas.structural_schema import shown_schema, structural_schema

GROUP = "cloudmatrix.io"
VERSION = "v1alpha1"

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_CONDITIONS = {
    "type": "array",
    "description": "latest observations, one condition per aspect",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": structural_schema(Condition) | {"required": ["type", "status"], "properties": shown_schema(Condition)},
}


def status_schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "observed state, written only by the operator",
        "x-kubernetes-preserve-unknown-fields": True,  # Kopf keeps its progress here
        "properties": {
            "state": text("lifecycle state"),
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "the generation of the spec that this status reflects",
            },
            "conditions": _CONDITIONS,
            **properties,
        },
    }


def text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def counts(**descriptions: str) -> dict[str, Any]:
    return {
        name: {"type": "integer", "format": "int32", "description": description}
        for name, description in descriptions.items()
    }


def parts(key: str, view: type[ApiModel], description: str) -> dict[str, Any]:
    """Schema of a list keyed by `key`, whose entries show `view` and carry conditions of their own."""
    return {
        "type": "array",
        "description": description,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": [key],
            "properties": shown_schema(view) | {"conditions": _CONDITIONS},
        },
    }


def mirrored(view: type[ApiModel], fields: Sequence[str]) -> dict[str, Any]:
    """Schema of a mirror's spec: `fields` of the mirrored service's view."""
    spec = OPEN | {"description": "what was requested from the mirrored service; never read back from here"}
    return spec | ({"properties": shown_schema(view, *fields)} if fields else {})


def _columns(text: str) -> list[dict[str, Any]]:
    """Parse printer columns such as `Nodes:integer=.spec.nodes ~QoS=QosSatisfied`.

    `:` introduces the type, a leading `~` shows the column only with `-o wide`, `_` stands for a space, and `=` is
    followed by a path or by the type of a condition whose status is shown. Age is appended as the last column.
    """
    found = []
    for word in [*text.split(), "Age:date=.metadata.creationTimestamp"]:
        title, _, source = word.partition("=")
        name, _, type = title.lstrip("~").partition(":")
        path = source if source.startswith(".") else f'.status.conditions[?(@.type=="{source}")].status'
        column = {"name": name.replace("_", " "), "type": type or "string", "jsonPath": path}
        found.append(column | ({"priority": 1} if title.startswith("~") else {}))
    return found


def crd(
    kind: str,
    plural: str,
    short: list[str],
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: str,
    *,
    scope: str = "Namespaced",
    scale: dict[str, Any] | None = None,
    description: str,
    rules: Sequence[dict[str, str]] = (),
    name_length_max: int | None = 63,
) -> dict[str, Any]:
    """`name_length_max` limits names to what the services accept, which also rules out dots; None does not limit them
    (mirrors, which users do not name)."""
    named = {"type": "string", "pattern": RESOURCE_NAME.pattern, "maxLength": name_length_max}
    subresources: dict[str, Any] = {"status": {}}
    if scale is not None:
        subresources["scale"] = scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
                "categories": ["cloudmatrix"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": _columns(columns),
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": description,
                            "required": ["spec"],
                            **({"x-kubernetes-validations": list(rules)} if rules else {}),
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"}
                                | ({"properties": {"name": named}} if name_length_max else {}),
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }
