"""Validation of a decoded object before it is stored: name, namespace, metadata and the rules of its kind."""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.resource import Resource


def require_name(obj: dict[str, Any], namespace: str, name: str) -> None:
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


def set_namespace(resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    requested = meta.get("namespace", "")
    if requested and requested != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = namespace


def validate_object(resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None, status: bool = False) -> None:
    if obj["kind"] != resource.kind:
        cause = errors.invalid("kind", obj["kind"], f"must be {resource.kind}")
        raise errors.unprocessable(obj["kind"], resource.group, obj["metadata"].get("name", ""), [cause])
    causes: list[Cause] = []
    if old is None:
        causes = object_meta.check_metadata(obj, resource)
    elif object_meta.has_metadata_changed(obj, old):
        metadata_causes = object_meta.check_metadata(obj, resource)
        causes = metadata_causes * (1 + resource.strategy.validates_metadata_twice) + object_meta.check_metadata_update(
            obj, old
        )
    if status and old is not None:
        causes += resource.strategy.validate_status(obj, old)
    else:
        causes += resource.strategy.validate(obj, old)
    if causes:
        error_group = resource.strategy.error_group
        group = resource.group if error_group is None else error_group
        raise errors.unprocessable(resource.kind, group, obj["metadata"].get("name", ""), causes)
