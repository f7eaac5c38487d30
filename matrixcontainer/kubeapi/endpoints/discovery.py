"""Discovery in both forms: the legacy one, with a document per group-version, and the aggregated one.

Both are generated from the registry on request and cached until the registry changes.
"""

import base64
import hashlib
import json
from typing import Any

from matrixcontainer.kubeapi.registry.resource import Registry, Resource


def subresource_entries(resource: Resource) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(name, group/version or "" for the resource's own, kind, verbs) of each subresource."""
    entries = list(resource.extra_subresources)
    if resource.status:
        entries.append(("status", "", resource.kind, ("get", "patch", "update")))
    if resource.scale is not None:
        entries.append(("scale", "autoscaling/v1", "Scale", ("get", "patch", "update")))
    return sorted(entries)


class Discovery:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def document(self, name: str) -> tuple[bytes, str]:
        """(JSON, ETag) of `api`, `apis`, `group:G`, `version:G/V`, `aggregated:api`...; KeyError if there is none."""

        def build() -> tuple[bytes, str]:
            text = json.dumps(self._build(name), separators=(",", ":")).encode()
            return text, '"' + hashlib.sha256(text).hexdigest()[:32].upper() + '"'

        return self.registry.derived(f"discovery {name}", build)

    def _build(self, name: str) -> dict[str, Any]:
        kind, _, rest = name.partition(":")
        if kind == "api":
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
            }
        if kind == "apis":
            groups = [self._group(group) for group in self.registry.groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if kind == "group":
            if rest not in self.registry.groups():
                raise KeyError(rest)
            return {"kind": "APIGroup", "apiVersion": "v1"} | self._group(rest)
        if kind == "version":
            group, _, version = rest.rpartition("/")
            return self._resource_list(group, version)
        names = [""] if rest == "api" else self.registry.groups()
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [self._aggregated_group(name) for name in names],
        }

    def _group(self, group: str) -> dict[str, Any]:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version} for version in self.registry.versions(group)
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> dict[str, Any]:
        resources = self.registry.in_group_version(group, version)
        if not resources and version not in self.registry.versions(group):
            raise KeyError(f"{group}/{version}")
        entries: list[dict[str, Any]] = []
        for resource in sorted(resources, key=lambda r: r.plural):
            entry: dict[str, Any] = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            entry |= _aliases(resource)
            entry["storageVersionHash"] = _short_hash(resource.storage)
            entries.append(entry)
            for name, owner, kind, verbs in subresource_entries(resource):
                entry = {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": kind,
                    "verbs": list(verbs),
                }
                if owner:
                    owner_group, _, owner_version = owner.rpartition("/")
                    entry |= {"group": owner_group, "version": owner_version}
                entries.append(entry)
        name = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}

    def _aggregated_group(self, group: str) -> dict[str, Any]:
        versions = []
        for version in self.registry.versions(group):
            resources = sorted(self.registry.in_group_version(group, version), key=lambda r: r.plural)
            versions.append(
                {
                    "version": version,
                    "resources": [self._aggregated_resource(r) for r in resources],
                    "freshness": "Current",
                }
            )
        meta = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        return {"metadata": meta, "versions": versions}

    def _aggregated_resource(self, resource: Resource) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "resource": resource.plural,
            "responseKind": _response_kind(resource, resource.group, resource.version, resource.kind),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
        }
        entry |= _aliases(resource)
        subresources = []
        for name, owner, kind, verbs in subresource_entries(resource):
            group, _, version = owner.rpartition("/") if owner else (resource.group, "", resource.version)
            response = _response_kind(resource, group, version, kind)
            subresources.append({"subresource": name, "responseKind": response, "verbs": list(verbs)})
        if subresources:
            entry["subresources"] = subresources
        return entry


def _aliases(resource: Resource) -> dict[str, list[str]]:
    """The resource's short names and categories."""
    aliases = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: names for key, names in aliases.items() if names}


def _short_hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _response_kind(resource: Resource, group: str, version: str, kind: str) -> dict[str, str]:
    """The responseKind; for a built-in kind in its own group and version only the kind is set."""
    if not resource.custom and (group, version) == (resource.group, resource.version):
        group = version = ""
    return {"group": group, "version": version, "kind": kind}
