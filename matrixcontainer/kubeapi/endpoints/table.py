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


INCLUDE_OBJECT_VALUES = ("", "None", "Metadata", "Object")


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
    return [name] + [cell_value(column, obj, now) for column in resource.columns]


def cell_value(column: PrinterColumn, obj: dict[str, Any], now: float) -> Any:
    value_list = column.path.find(obj)
    if not value_list or value_list[0] is None:
        return None
    value = value_list[0] if len(value_list) == 1 else value_list
    if column.type == "date":
        return age_of(value, now)
    if column.type in ("integer", "number", "boolean"):
        wanted = {"integer": int, "number": (int, float), "boolean": bool}[column.type]
        return value if isinstance(value, wanted) else None  # type: ignore[arg-type]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, separators=(",", ":"))
    return str(value)


def partial_object_metadata(obj: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


class TableForm:
    """Renders objects of one resource as tables; in a stream only the first has column definitions."""

    def __init__(self, resource: Resource, include: str, now: Callable[[], float], version: str = "v1") -> None:
        if include not in INCLUDE_OBJECT_VALUES:
            message = "must be 'Metadata', 'Object', 'None', or empty"
            cause = invalid("includeObject", include, message)
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
            row["object"] = partial_object_metadata(obj, self.version) if self.include == "Metadata" else None
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
    return partial_object_metadata(obj)
