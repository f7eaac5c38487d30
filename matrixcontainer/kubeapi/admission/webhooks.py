"""Admission webhooks: mutating ones may change the object before it is written, validating ones may reject it.

Mutating webhooks are called in sequence, in order of their configurations' names; with reinvocationPolicy IfNeeded a
webhook is called again if a later one changed the object. Validating webhooks see the final object and are called in
parallel. If a webhook cannot be called, the write fails with 500 or the webhook is skipped, as its failure policy says.
Webhook configurations themselves are never sent to webhooks. Contract: public documentation "Dynamic Admission
Control".
"""

import asyncio
import random
import time
from typing import Any

from matrixcontainer.kubeapi.admission.webhook_client import WebhookCallError, WebhookClient, parse_patch
from matrixcontainer.kubeapi.admission.webhook_matcher import (
    AdmissionRequest,
    Hook,
    matches_selectors,
    matching_resource,
    parse_hooks,
)
from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.builtin.webhooks import service_warnings
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.patch import patches
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.observer import Observer
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.registry.scale import scale_of
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.storage.objects import Change
from matrixcontainer.kubeapi.storage.store import Store

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = f"mutatingwebhookconfigurations.{GROUP}", f"validatingwebhookconfigurations.{GROUP}"
OPTIONS_KIND = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
SUBRESOURCE_OBJECTS = ("binding", "eviction", "token")  # subresources admitted as objects of their own


class Webhooks:
    """`mutate` and `validate` are admission plugins."""

    def __init__(self, store: Store, registry: Registry, rng: random.Random) -> None:
        self.store, self.registry, self.rng = store, registry, rng
        self.client = WebhookClient()
        self.observer: Observer | None = None
        self._hooks: dict[str, list[Hook]] | None = None

    def on_change(self, change: Change) -> None:
        if change.record.key[0] in (MUTATING, VALIDATING):
            self._hooks = None

    def hooks(self, storage: str) -> list[Hook]:
        if self._hooks is None:
            self._hooks = {
                current: [
                    hook for r in self.store.objects_of(current) for hook in parse_hooks(r.obj, current == MUTATING)
                ]
                for current in (MUTATING, VALIDATING)
            }
        return self._hooks[storage]

    # ---- the two phases

    async def mutate(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> dict[str, Any] | None:
        """The object as changed by the webhooks, or None if none changed it."""
        hooks = self.hooks(MUTATING)
        if resource.group == GROUP and new is not None:
            options.warnings += service_warnings(new)
        if not hooks or resource.group == GROUP or options.subresource in SUBRESOURCE_OBJECTS:
            return None
        current, changed_at, seen_at = new, 0, dict[int, int]()
        for round_ in range(2):
            for index, hook in enumerate(hooks):
                reinvoke = hook.spec.get("reinvocationPolicy") == "IfNeeded" and changed_at > seen_at.get(
                    index, changed_at
                )
                if round_ and not reinvoke:
                    continue
                after = await self._mutate_once(hook, resource, verb, current, old, options)
                if after is not None and after != current:
                    changed_at += 1
                    current = after
                seen_at[index] = changed_at
        return current if current is not new else None

    async def _mutate_once(
        self,
        hook: Hook,
        resource: Resource,
        verb: str,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
        options: Options,
    ) -> dict[str, Any] | None:
        admission = _admission_request(resource, verb, new, old, options)
        matched, response = await self._call(hook, admission, options)
        if matched is None or response is None or new is None or options.subresource == "scale":
            return None
        try:
            patch = parse_patch(response)
            if not patch:
                return None
            converted = _convert_version(admission.resource, matched, copy_json(new))
            changed = patches.json_patch(converted, patch)
        except (WebhookCallError, ApiError) as failure:
            if not hook.fails_closed:
                return None
            raise errors.internal(f'failed calling webhook "{hook.name}": {failure}') from failure
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata", {}), dict):
            raise errors.internal(f'webhook "{hook.name}" patched the object to something that is not an object')
        changed = _convert_version(matched, admission.resource, changed)
        changed |= {"apiVersion": resource.api_version, "kind": resource.kind}
        object_meta.clean_metadata(changed, resource)
        return changed

    async def validate(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        hooks = self.hooks(VALIDATING)
        if not hooks or resource.group == GROUP or options.subresource in SUBRESOURCE_OBJECTS:
            return
        admission = _admission_request(resource, verb, new, old, options)
        outcomes = await asyncio.gather(
            *(self._call(hook, admission, options) for hook in hooks), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def admit_subresource_object(
        self, resource: Resource, name: str, namespace: str, body: Any, options: Options
    ) -> None:
        """Admit a binding, eviction or token created through a subresource. Patches to it are ignored."""
        admission = AdmissionRequest(resource, "CREATE", namespace, name, options.subresource, body, None)
        for storage in (MUTATING, VALIDATING):
            for hook in self.hooks(storage):
                await self._call(hook, admission, options)

    # ---- calling one webhook

    async def _call(
        self, hook: Hook, admission: AdmissionRequest, options: Options
    ) -> tuple[Resource | None, dict[str, Any] | None]:
        """(resource in whose version it was called, its response); (None, None) if it was not called or was skipped."""
        others = [
            r for r in self.registry.all() if r.storage == admission.resource.storage and r is not admission.resource
        ]
        matched = matching_resource(hook, admission, others)
        if matched is None or not matches_selectors(hook, admission, self.store):
            return None, None
        request = self._request(admission, matched, options)
        try:
            if not _conditions_hold(hook, request):
                return None, None
            if options.dry_run and not hook.has_no_side_effects:
                raise errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')
            review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
            response = await self._timed_call(hook, review, admission.operation)
        except WebhookCallError as failure:
            if not hook.fails_closed:
                return None, None
            raise errors.internal(f'failed calling webhook "{hook.name}": {failure}') from failure
        options.warnings.extend(str(text) for text in response.get("warnings") or [])
        if not response.get("allowed"):
            raise _denied_error(hook, response.get("status") or {})
        return matched, response

    async def _timed_call(self, hook: Hook, review: dict[str, Any], operation: str) -> dict[str, Any]:
        started, allowed = time.perf_counter(), False
        try:
            response = await self.client.call(hook, review)
            allowed = bool(response.get("allowed"))
            return response
        finally:
            if self.observer is not None:
                kind = "admit" if hook.mutating else "validating"
                self.observer.record_admission(kind, operation, not allowed, time.perf_counter() - started)

    def _request(self, admission: AdmissionRequest, matched: Resource, options: Options) -> dict[str, Any]:
        resource = admission.resource
        caller = options.caller or User(options.user, ("system:authenticated",))
        is_subresource_object = admission.subresource in SUBRESOURCE_OBJECTS
        request: dict[str, Any] = {
            "uid": object_meta.new_uid(self.rng),
            "kind": _kind(matched, admission),
            "resource": {"group": matched.group, "version": matched.version, "resource": matched.plural},
            "requestKind": _kind(resource, admission),
            "requestResource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "operation": admission.operation,
            "userInfo": caller.info(),
            "object": admission.new if is_subresource_object else _convert_version(resource, matched, admission.new),
            "oldObject": _convert_version(resource, matched, admission.old),
            "dryRun": options.dry_run,
            "options": _options(admission.operation, options),
        }
        if admission.subresource == "scale" and resource.scale is not None:
            for key in ("object", "oldObject"):
                request[key] = scale_of(request[key], resource.scale) if request[key] else None
        if admission.subresource:
            request |= {"subResource": admission.subresource, "requestSubResource": admission.subresource}
        if admission.name:
            request["name"] = admission.name
        if admission.namespace:
            request["namespace"] = admission.namespace
        return request


def _admission_request(
    resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
) -> AdmissionRequest:
    meta = ((new if new is not None else old) or {}).get("metadata", {})
    namespace = meta.get("namespace", "") if resource.namespaced else ""
    if resource.storage == "namespaces":
        namespace = meta.get("name", "")
    return AdmissionRequest(resource, verb, namespace, meta.get("name", ""), options.subresource, new, old)


def _kind(resource: Resource, admission: AdmissionRequest) -> dict[str, str]:
    if admission.subresource in SUBRESOURCE_OBJECTS:
        subresource = next((s for s in resource.extra_subresources if s[0] == admission.subresource), ("", "", "", ()))
        group, _, version = (subresource[1] or resource.version).rpartition("/")
        return {"group": group, "version": version, "kind": subresource[2]}
    if admission.subresource == "scale":
        return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _convert_version(origin: Resource, target: Resource, obj: dict[str, Any] | None) -> Any:
    """Convert the object from one version to another."""
    if obj is None or origin is target:
        return obj
    stored = origin.stored_object(obj)
    if target.from_storage is not None:
        return target.from_storage(stored)
    return stored | {"apiVersion": target.api_version}


def _options(operation: str, options: Options) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": OPTIONS_KIND[operation], "apiVersion": "meta.k8s.io/v1"}
    if options.dry_run:
        document["dryRun"] = ["All"]
    if operation != "DELETE":
        document |= {"fieldManager": options.field_manager} if options.field_manager else {}
        document |= {"fieldValidation": options.field_validation}
    return document


def _conditions_hold(hook: Hook, request: dict[str, Any]) -> bool:
    """Whether all matchConditions are true. Any false one decides; otherwise a failing one raises WebhookCallError."""
    conditions = hook.spec.get("matchConditions") or []
    if not conditions:
        return True
    from matrixcontainer.kubeapi.cel.environment import evaluate

    plain = {key: value for key, value in request.items() if key not in ("object", "oldObject")}
    variables = {"object": request["object"], "oldObject": request["oldObject"], "request": plain}
    failed = ""
    for condition in conditions:
        try:
            if not evaluate(condition.get("expression", ""), variables):
                return False
        except ValueError as failure:
            failed = failed or f"matchCondition {condition.get('name', '')!r} failed: {failure}"
    if failed:
        raise WebhookCallError(failed)
    return True


def _denied_error(hook: Hook, status: dict[str, Any]) -> ApiError:
    message = status.get("message") or status.get("reason") or ""
    text = f'admission webhook "{hook.name}" denied the request'
    code = status.get("code") if isinstance(status.get("code"), int) else 0
    failure = ApiError(
        code if code and code >= 400 else 400,
        status.get("reason") or "",
        f"{text}: {message}" if message else f"{text} without explanation",
        status.get("details") or {},
    )
    return failure
