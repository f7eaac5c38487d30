"""Handles for objects of the embedded Kubernetes API in this process, read from its store without a request."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import InvalidField, NotFound
from matrixcontainer.kubeapi.registry import resource as registry
from matrixcontainer.kubeapi.server import KubeApi


def find_served(api: KubeApi, word: str) -> registry.Resource:
    """Resolve a resource type as kubectl does: by plural, singular, short name or kind, with or without `.group`.
    Raises InvalidField."""
    wanted, _, group = word.lower().partition(".")
    for each in api.core.registry.preferred():
        names = {each.plural, each.singular, each.kind.lower(), *each.short_names}
        if wanted in names and (not group or group == each.group):
            return each
    raise InvalidField(f"the API serves no kind {word!r}", field="kind")


class Resource:
    """A handle for one object; every access reads its current state."""

    def __init__(self, api: KubeApi, kind: registry.Resource, name: str, namespace: str) -> None:
        self._api, self._kind = api, kind
        self.name, self.namespace = name, namespace if kind.namespaced else ""

    def find(self) -> dict[str, Any] | None:
        record = self._api.store.get((self._kind.storage, self.namespace, self.name))
        return None if record is None else record.obj

    def exists(self) -> bool:
        return self.find() is not None

    def body(self) -> dict[str, Any]:
        """The whole object. Raises NotFound."""
        found = self.find()
        if found is None:
            raise NotFound(f"there is no {self._kind.kind} {self.name}", field="name")
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The object's status; empty if there is no object or it has no status yet."""
        return (self.find() or {}).get("status") or {}

    @property
    def state(self) -> str:
        return str(self.status.get("state", ""))

    def condition(self, type: str) -> bool:
        """Whether the condition is True and was observed for the object's current generation."""
        found = self.conditions().get(type)
        if found is None or found["status"] != "True":
            return False
        seen = found.get("observedGeneration", self.status.get("observedGeneration"))
        return seen is None or seen >= self.body()["metadata"].get("generation", 0)

    def conditions(self) -> dict[str, dict[str, Any]]:
        """The conditions by type."""
        return {each["type"]: each for each in self.status.get("conditions", [])}

    def members(self) -> list[str]:
        """The nodes of an instance in order of rank, without its spares."""
        members = [each for each in self.status.get("members", []) if each.get("role", "member") == "member"]
        return [str(each["node"]) for each in sorted(members, key=lambda each: each.get("rank", 0))]

    def __repr__(self) -> str:
        return f"<{self._kind.kind} {self.namespace}/{self.name}: {self.state or 'no state'}>"
