"""What hangs below an object: status, scale, binding, eviction, finalize, token, log; and reviews, which are only
answered.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.builtin.pod_parts import POD_PARTS
from matrixcontainer.kubeapi.builtin.pods import BINDING, bind, check_binding
from matrixcontainer.kubeapi.endpoints.eviction import evict
from matrixcontainer.kubeapi.endpoints.request import VERBS, Request, Target
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.patch.patches import json_patch, merge_patch
from matrixcontainer.kubeapi.registry.decoding import broken_patch
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource, ScalePaths
from matrixcontainer.kubeapi.registry.scale import SCALES, scale_of
from matrixcontainer.kubeapi.schema.unmarshal_errors import unmarshal_mistake

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.app import App

NEEDS_A_CONTAINER = ("attach", "exec", "portforward", "proxy")
TOKEN_LIFETIME_S = 3600
TOKEN_LIFETIME_S_MIN = 600


async def answer(app: "App", request: Request, resource: Resource, target: Target) -> Response:
    sub = target.subresource
    offered = {name: verbs for name, _, _, verbs in resource.extra_subresources}
    if sub == "status" and resource.status:
        return await _status(app, request, resource, target)
    if sub == "scale" and resource.scale is not None:
        return await _scale(app, request, resource, target, resource.scale)
    if sub not in offered:
        if resource.custom:
            raise errors.not_found(resource.plural, resource.group, target.name)
        raise errors.no_such_path()
    if VERBS.get(request.method) not in offered[sub]:
        raise errors.method_not_allowed()
    if sub in NEEDS_A_CONTAINER:
        pod = app.api.verbs.get(resource, target.namespace, target.name)
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {target.name} does not have a host assigned")
        raise ApiError(501, "NotImplemented", f"pods/{sub} is not served here: no container runs behind these pods")
    if part := POD_PARTS.get(sub):
        return await _part(app, request, replace(resource, strategy=part), target)
    if sub == "log" and request.method == "GET":
        return _log(app, request, resource, target)
    if sub == "finalize" and request.method == "PUT":
        options = app.options(request, "finalize")
        options.from_controller = True
        body = app.parsed(request, resource, options)
        finalizers = (body.get("spec") or {}).get("finalizers") or []

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            obj.setdefault("spec", {})["finalizers"] = finalizers
            return obj

        verbs = app.api.verbs
        outcome = await verbs.modify(resource, target.namespace, target.name, change, options)
        return app.outcome(request, resource, outcome)
    options = app.options(request, sub)
    body = app.parsed(request, resource, options)
    await app.api.admission.admit_other(resource, target.name, target.namespace, body, options)
    if sub == "binding":
        return await _bind(app, resource, target, body, options)
    if sub == "eviction":
        return await _evict(app, resource, target, body, options)
    return _token(app, request, resource, target, body)


# ---- parts of an object with an endpoint of their own


async def _part(app: "App", request: Request, resource: Resource, target: Target) -> Response:
    """Reads the whole object, writes only what the strategy of the part lets through."""
    if request.method in ("GET", "HEAD"):
        return app.render(request, resource, app.api.verbs.get(resource, target.namespace, target.name), 200)
    write = app.update if request.method == "PUT" else app.patch
    return await write(request, resource, target, target.subresource)


async def _status(app: "App", request: Request, resource: Resource, target: Target) -> Response:
    if request.method in ("GET", "HEAD"):
        record = app.api.verbs.record(resource, target.namespace, target.name)
        return app.render(request, resource, resource.show(record), 200)
    if request.method == "PUT":
        return await app.update(request, resource, target, "status")
    if request.method == "PATCH":
        return await app.patch(request, resource, target, "status")
    raise errors.method_not_allowed()


# ---- scale


async def _scale(app: "App", request: Request, resource: Resource, target: Target, paths: ScalePaths) -> Response:
    verbs = app.api.verbs
    if request.method == "GET":
        scale = scale_of(verbs.get(resource, target.namespace, target.name), paths)
        return app.render(request, SCALES, scale, 200)
    if request.method not in ("PUT", "PATCH"):
        raise errors.method_not_allowed()
    options = app.options(request, "scale")
    if request.method == "PUT":
        stated = app.parsed(request, resource, options)
        kind = "replace"
    else:
        kind, stated = app.parsed_patch(request, _without_strategic(resource), options)

    def change(obj: dict[str, Any]) -> dict[str, Any]:
        scale = scale_of(obj, paths)
        if kind == "replace":
            scale = stated
        elif kind == "json":
            scale = json_patch(scale, stated)
        else:
            scale = merge_patch(scale, stated)
        if kind != "replace":
            _demand_scale(scale, resource, options, app)
        app.api.verbs.demand_name({"metadata": scale.get("metadata") or {}}, target.namespace, target.name)
        wanted = (scale.get("spec") or {}).get("replicas") or 0
        if not resource.custom:  # the rules of its definition judge it
            _check_scale(target.name, wanted)
        revision = str((scale.get("metadata") or {}).get("resourceVersion") or "")
        if revision and revision != obj["metadata"]["resourceVersion"]:
            raise errors.conflict(resource.plural, resource.group, target.name)
        JsonPath(paths.spec).put(obj, wanted)
        return obj

    outcome = await verbs.modify(resource, target.namespace, target.name, change, options)
    return app.render(request, SCALES, scale_of(outcome.obj, paths), 200)


def _demand_scale(scale: dict[str, Any], resource: Resource, options: Options, app: "App") -> None:
    """What a patch made of a Scale must still be one."""
    found = {key: scale[key] for key in sorted(scale)}
    if scale.get("kind") != "Scale":
        text = f'no kind "{scale.get("kind", "")}" is registered for version "autoscaling/v1" in scheme'
        raise broken_patch(found, f'{text} "pkg/runtime/scheme.go:110"')
    if why := unmarshal_mistake("autoscaling.v1.Scale", scale):
        raise broken_patch(found, why)
    odd = [key for key in scale if key not in ("apiVersion", "kind", "metadata", "spec", "status")]
    app.api.verbs.report_unknown([f'unknown field "{key}"' for key in odd], resource, options)


def _without_strategic(resource: Resource) -> Resource:
    return resource


def _check_scale(name: str, wanted: Any) -> None:
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise errors.bad_request(
            "Scale cannot be handled: json: cannot unmarshal into field spec.replicas of type int32"
        )
    if wanted < 0 or wanted >= 2**31:
        text = "must be greater than or equal to 0" if wanted < 0 else "must fit into 32 bits"
        raise errors.unprocessable("Scale", "autoscaling", name, [errors.invalid("spec.replicas", wanted, text)])


# ---- pods


async def _bind(app: "App", resource: Resource, target: Target, body: dict[str, Any], options: Options) -> Response:
    stated = (body.get("metadata") or {}).get("name") or target.name
    if stated != target.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    described = body.get("target") or {}
    if found := check_binding(described):
        text = ", ".join(map(str, found))
        raise errors.untyped(text if len(found) == 1 else f"[{text}]")
    node = described["name"]
    reported = (body.get("metadata") or {}).get("uid")
    marks = (body.get("metadata") or {}).get("annotations") or {}

    def change(pod: dict[str, Any]) -> dict[str, Any]:
        if reported and reported != pod["metadata"]["uid"]:
            raise errors.conflict("pods", "", target.name, f"Precondition failed: UID in precondition: {reported}")
        why = ""
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
        elif current := pod["spec"].get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{current}"'
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {target.name} has non-empty .spec.schedulingGates"
        if why:
            raise errors.conflict("pods/binding", "", target.name, why)
        if marks:
            pod["metadata"].setdefault("annotations", {}).update(marks)
        return bind(pod, node, timestamp(app.api.now()))

    options.from_controller = True
    pods = replace(resource, strategy=BINDING)
    await app.api.verbs.modify(pods, target.namespace, target.name, change, options)
    return as_json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


async def _evict(app: "App", resource: Resource, target: Target, body: dict[str, Any], options: Options) -> Response:
    await evict(app.api, resource, target.namespace, target.name, body, options)
    return as_json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _log(app: "App", request: Request, resource: Resource, target: Target) -> Response:
    """Plain text, made up by the emulated kubelets."""
    from matrixcontainer.kubeapi.kubelet import logs

    pod = app.api.verbs.get(resource, target.namespace, target.name)
    logs.chosen_container(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Response(b"", media="text/plain; charset=utf-8")  # nobody has started it, so there is nothing to read
    return Response(logs.answer(app.api, request, pod), media="text/plain; charset=utf-8")


# ---- tokens and reviews


def _token(app: "App", request: Request, resource: Resource, target: Target, body: dict[str, Any]) -> Response:
    account = app.api.verbs.get(resource, target.namespace, target.name)
    wanted = int((body.get("spec") or {}).get("expirationSeconds") or TOKEN_LIFETIME_S)
    if wanted < TOKEN_LIFETIME_S_MIN:
        cause = errors.invalid("spec.expirationSeconds", wanted, "may not specify a duration less than 10 minutes")
        raise errors.unprocessable("TokenRequest", "authentication.k8s.io", "", [cause])
    token, ends = app.api.access.issue(target.namespace, target.name, account["metadata"]["uid"], wanted)
    found = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": target.name, "namespace": target.namespace},
        "spec": (body.get("spec") or {}) | {"expirationSeconds": wanted},
        "status": {"token": token, "expirationTimestamp": timestamp(ends)},
    }
    return as_json(found, 201)
