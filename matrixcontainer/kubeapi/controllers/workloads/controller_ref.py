"""Controller references: adoption of objects that match an owner's selector, and release of those that no longer do.

An owner adopts matching objects without a controller and releases its own once they no longer match. Objects being
deleted are neither adopted nor released, and owners being deleted adopt nothing.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller, filter_list
from matrixcontainer.kubeapi.kubelet.pod_info import controller_of
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.resource import Resource


def owner_reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def classify(owner: dict[str, Any], owned: list[Any], ownerless: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """(kept, to adopt, to release) for this owner."""
    selector = owner["spec"].get("selector")
    kept: list[Any] = []
    released: list[Any] = []
    for candidate in owned:
        (kept if matches_label_selector(selector, candidate.labels or {}) else released).append(candidate)
    if "deletionTimestamp" in owner["metadata"]:
        return kept, [], []
    adopted = [
        candidate
        for candidate in ownerless
        if not candidate.deleting and selector and matches_label_selector(selector, candidate.labels or {})
    ]
    return kept, adopted, [candidate for candidate in released if not candidate.deleting]


async def claim(
    controller: Controller,
    resource: Resource,
    owner: dict[str, Any],
    owned: list[Any],
    ownerless: list[Any],
    finalizer: str = "",
) -> bool:
    """Adopt and release objects; return whether there were any. The finalizer comes and goes with the reference."""
    _, adopted, released = classify(owner, owned, ownerless)
    for candidate in adopted:
        namespace, name = candidate.key
        change = _with_owner(owner, candidate.uid, resource, finalizer)
        await controller.core.verbs.modify(resource, namespace, name, change, controller.options())
    for candidate in released:
        namespace, name = candidate.key
        change = _without_owner(owner, finalizer)
        await controller.core.verbs.modify(resource, namespace, name, change, controller.options())
    return bool(adopted or released)


def _with_owner(owner: dict[str, Any], uid: str, resource: Resource, finalizer: str) -> Any:
    def change(obj: dict[str, Any]) -> dict[str, Any]:
        meta = obj["metadata"]
        if meta["uid"] != uid or controller_of(meta) is not None or "deletionTimestamp" in meta:
            raise errors.conflict(resource.plural, resource.group, meta["name"])
        meta.setdefault("ownerReferences", []).append(owner_reference(owner))
        if finalizer and finalizer not in meta.setdefault("finalizers", []):
            meta["finalizers"].append(finalizer)
        return obj

    return change


def _without_owner(owner: dict[str, Any], finalizer: str) -> Any:
    def change(obj: dict[str, Any]) -> dict[str, Any]:
        if finalizer:
            filter_list(obj["metadata"], "finalizers", lambda one: one != finalizer)
        filter_list(obj["metadata"], "ownerReferences", lambda one: one["uid"] != owner["metadata"]["uid"])
        return obj

    return change
