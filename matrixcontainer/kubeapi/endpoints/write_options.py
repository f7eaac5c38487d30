"""Parsing of a write's query, headers and body: options, object or patch, and DeleteOptions."""

from typing import Any

from matrixcontainer.kubeapi.codec.serializer import APPLY, parse_body, parse_large
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.decoder import report_unknown
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.schema import structural
from matrixcontainer.kubeapi.schema.types import schema_of
from matrixcontainer.kubeapi.schema.validation import type_of, validate

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
DELETE_KEYS = ("propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun")


def parse_options(request: Request, subresource: str = "") -> Options:
    dry_run = request.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        cause = errors.not_supported("dryRun", [dry_run], ["All"])
        raise errors.unprocessable("CreateOptions", "meta.k8s.io", "", [cause])
    validation = request.query.get("fieldValidation", "") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        cause = errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        raise errors.unprocessable("CreateOptions", "meta.k8s.io", "", [cause])
    manager = request.query.get("fieldManager", "")
    if len(manager) > 128:
        raise errors.unprocessable("CreateOptions", "meta.k8s.io", "", [errors.too_long("fieldManager", 128)])
    return Options(
        user=request.user.name,
        field_manager=manager,
        user_agent=request.headers.get("user-agent", ""),
        field_validation=validation,
        dry_run=bool(dry_run),
        force=request.flag("force"),
        subresource=subresource,
        warnings=request.warnings,
        caller=request.user,
    )


async def parse_object(request: Request, resource: Resource, options: Options) -> dict[str, Any]:
    """Parse the body, reporting duplicate keys as the field validation option says."""
    duplicates: list[str] = []
    options.body = request.body
    value = await parse_large(request.body, request.media_type, duplicates)
    if duplicates and isinstance(value, dict):
        report_unknown([f'duplicate field "{path}"' for path in duplicates], resource, options)
    return value


async def parse_patch(request: Request, resource: Resource, options: Options) -> tuple[str, Any]:
    kind = PATCH_TYPES.get(request.media_type, "")
    if not kind or (kind == "strategic" and not resource.strategy.strategic):
        patch_types = [
            media for media, name in PATCH_TYPES.items() if name != "strategic" or resource.strategy.strategic
        ]
        if not resource.custom:
            raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        raise errors.unsupported_media_type(patch_types)
    if options.force and kind != "apply":
        cause = errors.forbidden_field("force", "may not be specified for non-apply patch")
        raise errors.unprocessable("PatchOptions", "meta.k8s.io", "", [cause])
    duplicates: list[str] = []
    patch = await parse_large(request.body, APPLY if kind == "apply" else "", duplicates)
    if duplicates:
        report_unknown([f'duplicate field "{path}"' for path in duplicates], resource, options)
    return kind, patch


def validate_type(value: Any, type_name: str) -> dict[str, Any]:
    """Decode a value as a type that is not a resource. Raises 400 naming a field of the wrong type."""
    _, version, kind = type_name.rsplit(".", 2)
    schema = schema_of(type_name)
    if not isinstance(value, dict):
        message = f"json: cannot unmarshal {type_of(value)} into Go value of type {version}.{kind}"
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {message}")
    structural.drop_nulls(value, schema)
    for cause in validate({key: item for key, item in value.items() if key in schema.properties}, schema):
        if cause.reason == "FieldValueTypeInvalid":
            message = f"json: cannot unmarshal into field {cause}"
            raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {message}')
    return value


def parse_deletion(request: Request) -> Deletion:
    """DeleteOptions from the body, or else from the query."""
    document: dict[str, Any] = {}
    if request.body.strip():
        try:
            value = parse_body(request.body, request.media_type, [])
        except ApiError as failure:
            if failure.code != 400:
                raise
            raise errors.untyped(failure.message) from failure
        document = validate_type(value, "meta.v1.DeleteOptions")
    document = {key: document.get(key, request.query.get(key)) for key in DELETE_KEYS} | {
        "preconditions": document.get("preconditions") or {}
    }
    propagation = document["propagationPolicy"] or ""
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        allowed = ["Foreground", "Background", "Orphan", "nil"]
        cause = errors.not_supported("propagationPolicy", propagation, allowed)
        raise errors.unprocessable("DeleteOptions", "meta.k8s.io", "", [cause])
    if document["orphanDependents"] is not None and propagation:
        message = "orphanDependents and deletionPropagation cannot be both set"
        cause = errors.invalid("propagationPolicy", propagation, message)
        raise errors.unprocessable("DeleteOptions", "meta.k8s.io", "", [cause])
    if document["orphanDependents"] is not None:
        propagation = "Orphan" if str(document["orphanDependents"]).lower() == "true" else "Background"
    dry_run = document["dryRun"] or []
    dry_run = [dry_run] if isinstance(dry_run, str) else dry_run
    if any(value_text != "All" for value_text in dry_run):
        raise errors.unprocessable(
            "DeleteOptions", "meta.k8s.io", "", [errors.not_supported("dryRun", dry_run, ["All"])]
        )
    grace = document["gracePeriodSeconds"]
    if isinstance(grace, str) and grace == request.query.get("gracePeriodSeconds"):
        grace = request.number("gracePeriodSeconds")
    if grace is not None and type(grace) is not int:
        raise errors.bad_request("gracePeriodSeconds must be a 64-bit integer")
    if grace is not None and grace < 0:
        grace = 1
    conditions = document["preconditions"]
    return Deletion(
        propagation, grace, conditions.get("uid") or "", conditions.get("resourceVersion") or "", bool(dry_run)
    )
