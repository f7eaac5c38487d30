"""Tables, as `kubectl get` prints them, rendered by the server so that all clients show the same.

CRDs define their columns (`additionalPrinterColumns`), built-in kinds a function for their cells; the default is Name
and Age. Times are shown as ages in kubectl's format: 5s, 3m12s, 4h, 2d.
"""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.builtin.printers.tables import COLUMNS, ROW_CONDITIONS
from matrixcontainer.kubeapi.meta.errors import bad_request, invalid
from matrixcontainer.kubeapi.registry.printer_columns import CUSTOM_AGE, NAME, age_of, column
from matrixcontainer.kubeapi.registry.resource import PrinterColumn, Resource

Columns = list[dict[str, Any]]


INCLUDED = ("", "None", "Metadata", "Object")


def columns_of(resource: Resource) -> Columns:
    if resource.cells is not None:
        return COLUMNS[resource.storage]
    if not resource.columns:
        return [NAME, CUSTOM_AGE]
    return [NAME] + [column(c.name, c.type, c.priority, c.format, c.description) for c in resource.columns]


def row_conditions(resource: Resource) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """A function that returns the conditions of a kind's row."""
    if resource.cells is None:
        return lambda obj: []
    return ROW_CONDITIONS.get(resource.storage, lambda obj: [])


def cells_of(resource: Resource, obj: dict[str, Any], now: float) -> list[Any]:
    if resource.cells is not None:
        return resource.cells(obj, now)
    name = obj["metadata"].get("name", "")
    if not resource.columns:
        return [name, age_of(obj["metadata"].get("creationTimestamp"), now)]
    return [name] + [printed_cell(printed, obj, now) for printed in resource.columns]


def printed_cell(printed: PrinterColumn, obj: dict[str, Any], now: float) -> Any:
    found = printed.path.find(obj)
    if not found or found[0] is None:
        return None
    value = found[0] if len(found) == 1 else found
    if printed.type == "date":
        return age_of(value, now)
    if printed.type in ("integer", "number", "boolean"):
        wanted = {"integer": int, "number": (int, float), "boolean": bool}[printed.type]
        return value if isinstance(value, wanted) else None  # type: ignore[arg-type]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, separators=(",", ":"))
    return str(value)


def partial(obj: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


class TableForm:
    """Renders objects of one resource as tables; in a stream only the first has column definitions."""

    def __init__(self, resource: Resource, include: str, now: Callable[[], float], version: str = "v1") -> None:
        if include not in INCLUDED:
            why = "must be 'Metadata', 'Object', 'None', or empty"
            cause = invalid("includeObject", include, why)
            raise bad_request(f"Unable to convert to Table as requested: {cause}")
        self.resource, self.include, self.now, self.version = resource, include or "Metadata", now, version
        self.conditions = row_conditions(resource)

    def row(self, obj: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {"cells": cells_of(self.resource, obj, self.now())}
        if found := self.conditions(obj):
            row["conditions"] = found
        if self.include == "Object":
            row["object"] = obj
        else:
            row["object"] = partial(obj, self.version) if self.include == "Metadata" else None
        return row

    def table(self, objects: list[dict[str, Any]], meta: dict[str, Any]) -> dict[str, Any]:
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.version}",
            "metadata": meta,
            "columnDefinitions": columns_of(self.resource),
            "rows": [self.row(obj) for obj in objects],
        }

    def __call__(self, obj: dict[str, Any], first: bool) -> dict[str, Any]:
        found = self.table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        if not first:
            found["columnDefinitions"] = None
        return found


def partial_form(obj: dict[str, Any], first: bool) -> dict[str, Any]:
    return partial(obj)
