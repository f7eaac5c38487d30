"""Validation of a decoded object before it is stored: name, namespace, metadata and the rules of its kind."""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.resource import Resource


def demand_name(obj: dict[str, Any], namespace: str, name: str) -> None:
    """Raise 400 unless the object has the name, and the namespace if given, that the request addresses."""
    meta = obj["metadata"]
    if not meta.get("name"):
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if meta["name"] != name:
        raise errors.bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if namespace and meta.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def settle_namespace(resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    stated = meta.get("namespace", "")
    if stated and stated != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = namespace


def demand_valid(resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None, status: bool = False) -> None:
    if obj["kind"] != resource.kind:
        cause = errors.invalid("kind", obj["kind"], f"must be {resource.kind}")
        raise errors.unprocessable(obj["kind"], resource.group, obj["metadata"].get("name", ""), [cause])
    found: list[Cause] = []
    if old is None:
        found = object_meta.check_metadata(obj, resource)
    elif object_meta.changed(obj, old):
        whole = object_meta.check_metadata(obj, resource)
        found = whole * (1 + resource.strategy.rechecks_metadata) + object_meta.check_metadata_update(obj, old)
    if status and old is not None:
        found += resource.strategy.validate_status(obj, old)
    else:
        found += resource.strategy.validate(obj, old)
    if found:
        text = resource.strategy.reported_group
        group = resource.group if text is None else text
        raise errors.unprocessable(resource.kind, group, obj["metadata"].get("name", ""), found)
