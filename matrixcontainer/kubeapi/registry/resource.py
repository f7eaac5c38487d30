"""The resources that the server serves: one `Resource` per group, version and plural, built-in or from a CRD.

Discovery, OpenAPI, routing and storage all use one `Registry`, so they cannot disagree. The versions of a kind, and the
two event groups, share one stored form: `storage` is the group-resource under which objects are stored, and a Resource
converts a stored object to its own version.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.selectors import Accessor, field_reader
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.structural import Schema
from matrixcontainer.kubeapi.storage.objects import Record

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

Conversion = Callable[[dict[str, Any]], dict[str, Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class ScalePaths:
    """JSON paths of an object's replica counts, such as `.spec.replicas`."""

    spec: str
    status: str
    selector: str = ""


@dataclass(frozen=True)
class PrinterColumn:
    """A printer column: its definition and the path of its cell."""

    name: str
    type: str
    path: JsonPath
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass
class Resource:
    """A plural in one API version, with everything that requests to it need."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: Schema
    strategy: Strategy
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    custom: bool = False
    status: bool = False
    scale: ScalePaths | None = None
    extra_subresources: tuple[tuple[str, str, str, tuple[str, ...]], ...] = ()  # name, group/version, kind, verbs
    columns: tuple[PrinterColumn, ...] = ()
    cells: Callable[[dict[str, Any], float], list[Any]] | None = None
    storage: str = ""
    storage_version: str = ""
    type_name: str = ""
    document: dict[str, Any] | None = None
    fields: dict[str, Accessor] = field(default_factory=dict)
    to_storage: Conversion | None = None
    from_storage: Conversion | None = None
    refresh_before: int = 0
    fingerprint: str = ""
    deprecated: str = ""
    computed: Callable[..., Any] | None = None  # answers instead of the store: (request, resource, target)
    terminating: bool = False  # its definition is being deleted: creation is refused

    def __post_init__(self) -> None:
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or f"{self.kind}List"
        self.storage = self.storage or (f"{self.plural}.{self.group}" if self.group else self.plural)
        self.storage_version = self.storage_version or self.api_version
        self.fields = {"metadata.name": field_reader("metadata.name")} | self.fields
        if self.namespaced:
            self.fields.setdefault("metadata.namespace", field_reader("metadata.namespace"))
        self._head = b'{"apiVersion":"%s","kind":"%s"' % (self.api_version.encode(), self.kind.encode())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    # ---- stored form and shown form

    def served_object(self, record: Record) -> dict[str, Any]:
        """The object in this version."""
        obj = record.obj
        if self.from_storage is not None:
            return self.from_storage(obj)
        obj["apiVersion"] = self.api_version
        if record.revision <= self.refresh_before:
            self.strategy.refresh(obj, self)
        return obj

    def served_bytes(self, record: Record) -> bytes:
        """The object in this version as JSON; usually the stored bytes themselves."""
        if self.from_storage is None and record.revision > self.refresh_before:
            if record.body.startswith(self._head):
                return record.body
            return self._head + record.body[record.body.index(b',"', record.body.index(b',"kind"') + 1) :]
        from matrixcontainer.kubeapi.storage.objects import encode

        return encode(self.served_object(record))

    def item_bytes(self, record: Record) -> bytes:
        """The object as a list item; built-in kinds omit apiVersion and kind there."""
        body = self.served_bytes(record)
        return body if self.custom else b"{" + body[len(self._head) + 1 :]

    def stored_object(self, obj: dict[str, Any]) -> dict[str, Any]:
        if self.to_storage is not None:
            return self.to_storage(obj)
        return obj | {"apiVersion": self.storage_version}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sort key: GA before beta before alpha, higher numbers first, anything else last by name."""
    match = re.match(r"^v(\d+)(?:(alpha|beta)(\d+))?$", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")


class Registry:
    """All served resources by (group, version, plural)."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._derived: dict[str, Any] = {}

    def derived(self, name: str, compute: Callable[[], T]) -> T:
        """A value computed from the registry, cached by name until the registry changes."""
        if name not in self._derived:
            self._derived[name] = compute()
        value: T = self._derived[name]
        return value

    def add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.version, resource.plural] = resource
        self._derived.clear()

    def remove(self, group: str, plural: str, version: str | None = None) -> None:
        for key in [k for k in self._resources if k[0] == group and k[2] == plural and version in (None, k[1])]:
            del self._resources[key]
        self._derived.clear()

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def all(self) -> list[Resource]:
        return list(self._resources.values())

    def groups(self) -> list[str]:
        """Named groups in order of registration, so built-in ones first; without the core group ("")."""
        return list(dict.fromkeys(resource.group for resource in self._resources.values() if resource.group))

    def is_built_in(self, group: str) -> bool:
        """Whether the group ("" for core) has kinds that do not come from a CRD."""
        return group in self.derived("built-in", self._built_in)

    def _built_in(self) -> frozenset[str]:
        return frozenset(resource.group for resource in self._resources.values() if not resource.custom)

    def versions(self, group: str) -> list[str]:
        found = {resource.version for resource in self._resources.values() if resource.group == group}
        return sorted(found, key=version_rank)

    def in_group_version(self, group: str, version: str) -> list[Resource]:
        return [r for r in self._resources.values() if r.group == group and r.version == version]

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        return next((r for r in self._resources.values() if r.api_version == api_version and r.kind == kind), None)

    def preferred(self) -> list[Resource]:
        """Each stored group-resource once, in its preferred version; for controllers that handle all kinds."""
        seen: dict[str, Resource] = {}
        for resource in self._resources.values():
            if "delete" not in resource.verbs:
                continue
            current = seen.get(resource.storage)
            if current is None or (
                current.group == resource.group and version_rank(resource.version) < version_rank(current.version)
            ):
                seen[resource.storage] = resource
        return list(seen.values())

    def by_storage(self, storage: str) -> Resource | None:
        return next((resource for resource in self.preferred() if resource.storage == storage), None)
