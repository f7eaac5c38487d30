"""Subresources: status, scale, binding, eviction, finalize, token and log."""

from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.admission.webhooks import Webhooks
from matrixcontainer.kubeapi.auth.authentication import API_AUDIENCE
from matrixcontainer.kubeapi.builtin.pods import BINDING, bind, check_binding
from matrixcontainer.kubeapi.endpoints.eviction import evict
from matrixcontainer.kubeapi.endpoints.request import VERBS, Request, Target
from matrixcontainer.kubeapi.endpoints.respond import Responder
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.write import WriteHandler
from matrixcontainer.kubeapi.endpoints.write_options import parse_object, parse_options, parse_patch, validate_type
from matrixcontainer.kubeapi.kubelet.logs import LogOptions, read_log
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.jsonpath import compile_path
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.patch.patches import json_patch, merge_patch
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.decoder import invalid_patch_error, report_unknown
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.patcher import require_map
from matrixcontainer.kubeapi.registry.resource import Resource, ScalePaths
from matrixcontainer.kubeapi.registry.scale import SCALES, scale_of
from matrixcontainer.kubeapi.registry.validation import require_name
from matrixcontainer.kubeapi.schema.validation import type_of, validate

TYPES = {  # of objects created through subresources
    "binding": "core.v1.Binding",
    "eviction": "policy.v1.Eviction",
    "token": "authentication.v1.TokenRequest",
}
SCALE_TYPE = "autoscaling.v1.Scale"
NO_CONTAINER = ("attach", "exec", "portforward", "proxy")
TOKEN_LIFETIME_S = 3600
TOKEN_LIFETIME_S_MIN = 600


class SubresourceHandler:
    def __init__(self, core: Core, webhooks: Webhooks, responder: Responder, writer: WriteHandler) -> None:
        self._core, self._webhooks, self._responder, self._writer = core, webhooks, responder, writer

    async def answer(self, request: Request, resource: Resource, target: Target) -> Response:
        sub = target.subresource
        subresources = {name: verbs for name, _, _, verbs in resource.extra_subresources}
        if sub == "status" and resource.status:
            return await self._status(request, resource, target)
        if sub == "scale" and resource.scale is not None:
            return await self._scale(request, resource, target, resource.scale)
        if sub not in subresources:
            if resource.custom:
                raise errors.not_found(resource.plural, resource.group, target.name)
            raise errors.no_such_path()
        if VERBS.get(request.method) not in subresources[sub]:
            raise errors.method_not_allowed()
        if sub in NO_CONTAINER:
            pod = self._core.verbs.get(resource, target.namespace, target.name)
            if not pod["spec"].get("nodeName"):
                raise errors.bad_request(f"pod {target.name} does not have a host assigned")
            raise ApiError(501, "NotImplemented", f"pods/{sub} is not supported: these pods run no containers")
        if sub == "log" and request.method == "GET":
            return self._log(request, resource, target)
        if sub == "finalize" and request.method == "PUT":
            options = parse_options(request, "finalize")
            options.from_controller = True
            body = validate_type(await parse_object(request, resource, options), resource.type_name)
            finalizers = (body.get("spec") or {}).get("finalizers") or []

            def change(obj: dict[str, Any]) -> dict[str, Any]:
                obj.setdefault("spec", {})["finalizers"] = finalizers
                return obj

            verbs = self._core.verbs
            outcome = await verbs.modify(resource, target.namespace, target.name, change, options)
            return self._responder.outcome(request, resource, outcome)
        options = parse_options(request, sub)
        body = validate_type(await parse_object(request, resource, options), TYPES[sub])
        await self._webhooks.admit_subresource_object(resource, target.name, target.namespace, body, options)
        if sub == "binding":
            return await self._bind(resource, target, body, options)
        if sub == "eviction":
            return await self._evict(resource, target, body, options)
        return self._token(request, resource, target, body)

    async def _status(self, request: Request, resource: Resource, target: Target) -> Response:
        if request.method in ("GET", "HEAD"):
            record = self._core.verbs.record(resource, target.namespace, target.name)
            return self._responder.render(request, resource, resource.served_object(record), 200)
        if request.method == "PUT":
            return await self._writer.update(request, resource, target, "status")
        if request.method == "PATCH":
            return await self._writer.patch(request, resource, target, "status")
        raise errors.method_not_allowed()

    # ---- scale

    async def _scale(self, request: Request, resource: Resource, target: Target, paths: ScalePaths) -> Response:
        verbs = self._core.verbs
        if request.method == "GET":
            scale = scale_of(verbs.get(resource, target.namespace, target.name), paths)
            return self._responder.render(request, SCALES, scale, 200)
        if request.method not in ("PUT", "PATCH"):
            raise errors.method_not_allowed()
        options = parse_options(request, "scale")
        if request.method == "PUT":
            requested = _as_scale(await parse_object(request, resource, options))
            kind = "replace"
        else:
            kind, requested = await parse_patch(request, resource, options)
            if kind != "json":
                require_map(requested, kind)

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            scale = scale_of(obj, paths)
            if kind == "replace":
                scale = requested
            elif kind == "json":
                scale = json_patch(scale, requested)
            else:
                scale = merge_patch(scale, requested)
            if kind != "replace":
                _require_scale(scale, resource, options)
            require_name({"metadata": scale.get("metadata") or {}}, target.namespace, target.name)
            desired = (scale.get("spec") or {}).get("replicas") or 0
            if not resource.custom:  # otherwise the CRD's schema checks it
                _check_scale(target.name, desired)
            revision = str((scale.get("metadata") or {}).get("resourceVersion") or "")
            if revision and revision != obj["metadata"]["resourceVersion"]:
                raise errors.conflict(resource.plural, resource.group, target.name)
            try:
                compile_path(paths.spec).set(obj, desired)
            except ValueError as failure:
                raise errors.untyped(str(failure)) from failure
            return obj

        outcome = await verbs.modify(resource, target.namespace, target.name, change, options)
        return self._responder.render(request, SCALES, scale_of(outcome.obj, paths), 200)

    # ---- pods

    async def _bind(self, resource: Resource, target: Target, body: dict[str, Any], options: Options) -> Response:
        requested = (body.get("metadata") or {}).get("name") or target.name
        if requested != target.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        described = body.get("target") or {}
        if value := check_binding(described):
            text = ", ".join(map(str, value))
            raise errors.untyped(text if len(value) == 1 else f"[{text}]")
        node = described["name"]
        target_document = (body.get("metadata") or {}).get("uid")
        metadata_patch = (body.get("metadata") or {}).get("annotations") or {}

        def change(pod: dict[str, Any]) -> dict[str, Any]:
            if target_document and target_document != pod["metadata"]["uid"]:
                raise errors.conflict(
                    "pods", "", target.name, f"Precondition failed: UID in precondition: {target_document}"
                )
            message = ""
            if "deletionTimestamp" in pod["metadata"]:
                message = f"pod {target.name} is being deleted, cannot be assigned to a host"
            elif current := pod["spec"].get("nodeName"):
                message = f'pod {target.name} is already assigned to node "{current}"'
            elif pod["spec"].get("schedulingGates"):
                message = f"pod {target.name} has non-empty .spec.schedulingGates"
            if message:
                raise errors.conflict("pods/binding", "", target.name, message)
            if metadata_patch:
                pod["metadata"].setdefault("annotations", {}).update(metadata_patch)
            return bind(pod, node, timestamp(self._core.now()))

        options.from_controller = True
        pods = replace(resource, strategy=BINDING)
        await self._core.verbs.modify(pods, target.namespace, target.name, change, options)
        return as_json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _evict(self, resource: Resource, target: Target, body: dict[str, Any], options: Options) -> Response:
        await evict(self._core, resource, target.namespace, target.name, body, options)
        return as_json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _log(self, request: Request, resource: Resource, target: Target) -> Response:
        """The log as plain text, generated by the emulated kubelet."""
        pod = self._core.verbs.get(resource, target.namespace, target.name)

        def number(name: str) -> int | None:
            return request.number(name) if request.query.get(name) else None

        options = LogOptions(
            container=request.query.get("container", ""),
            previous=request.flag("previous"),
            follow=request.flag("follow"),
            timestamps=request.flag("timestamps"),
            since_s=number("sinceSeconds"),
            since_time=request.query.get("sinceTime", ""),
            tail=number("tailLines"),
            bytes_max=number("limitBytes"),
        )
        return Response(read_log(self._core, pod, options), media="text/plain; charset=utf-8")

    # ---- tokens and reviews

    def _token(self, request: Request, resource: Resource, target: Target, body: dict[str, Any]) -> Response:
        account = self._core.verbs.get(resource, target.namespace, target.name)
        lifetime_s, audiences = _token_request(body.get("spec") or {})
        uid = account["metadata"]["uid"]
        token, expires_at = self._core.authenticator.issue_token(
            target.namespace, target.name, uid, lifetime_s, audiences
        )
        token_request = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": (body.get("spec") or {}) | {"audiences": audiences, "expirationSeconds": lifetime_s},
            "status": {"token": token, "expirationTimestamp": timestamp(expires_at)},
        }
        return as_json(token_request, 201)


def _token_request(spec: dict[str, Any]) -> tuple[int, list[str]]:
    """The requested lifetime in seconds and the audiences. Raises 400 or 422 if they are invalid."""
    lifetime_s, audiences = spec.get("expirationSeconds") or TOKEN_LIFETIME_S, spec.get("audiences") or [API_AUDIENCE]
    if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int):
        raise errors.bad_request("TokenRequest cannot be handled: spec.expirationSeconds is not an int64")
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise errors.bad_request("TokenRequest cannot be handled: spec.audiences is not a list of strings")
    mistake = ""
    if lifetime_s < TOKEN_LIFETIME_S_MIN:
        mistake = "may not specify a duration less than 10 minutes"
    if lifetime_s > 2**32:
        mistake = "may not specify a duration larger than 2^32 seconds"
    if mistake:
        cause = errors.invalid("spec.expirationSeconds", lifetime_s, mistake)
        raise errors.unprocessable("TokenRequest", "authentication.k8s.io", "", [cause])
    return lifetime_s, audiences


def _as_scale(body: Any) -> dict[str, Any]:
    """Decode a body as a Scale, except for spec.replicas, which the scaled kind's validation checks."""
    spec = body.get("spec") if isinstance(body, dict) else None
    if isinstance(spec, dict):
        validate_type(body | {"spec": {key: value for key, value in spec.items() if key != "replicas"}}, SCALE_TYPE)
        return body
    return validate_type(body, SCALE_TYPE)


def _require_scale(scale: dict[str, Any], resource: Resource, options: Options) -> None:
    """Raise 422 unless the result of a patch is still a Scale."""
    if not isinstance(scale, dict):
        raise invalid_patch_error(scale, f"json: cannot unmarshal {type_of(scale)} into Go value of type v1.Scale")
    value = {key: scale[key] for key in sorted(scale)}
    if scale.get("kind") != "Scale":
        raise invalid_patch_error(
            value, f'no kind "{scale.get("kind", "")}" is registered for version "autoscaling/v1"'
        )
    for cause in validate({key: scale[key] for key in value if key in SCALES.schema.properties}, SCALES.schema):
        if cause.reason == "FieldValueTypeInvalid":
            raise invalid_patch_error(value, f"json: cannot unmarshal into field {cause}")
    unexpected = [key for key in scale if key not in ("apiVersion", "kind", "metadata", "spec", "status")]
    report_unknown([f'unknown field "{key}"' for key in unexpected], resource, options)


def _check_scale(name: str, replicas: Any) -> None:
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise errors.bad_request(
            "Scale cannot be handled: json: cannot unmarshal into field spec.replicas of type int32"
        )
    if replicas < 0 or replicas >= 2**31:
        text = "must be greater than or equal to 0" if replicas < 0 else "must fit into 32 bits"
        raise errors.unprocessable("Scale", "autoscaling", name, [errors.invalid("spec.replicas", replicas, text)])
