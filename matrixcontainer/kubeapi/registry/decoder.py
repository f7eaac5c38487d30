"""Decode request bodies into objects of a resource: version, kind and unknown fields. Never writes."""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.schema.structural import copy_json


class Decoder:
    """`decode` is for whole objects, `decode_patched` for the result of a patch."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def decode(
        self, resource: Resource, body: dict[str, Any], options: Options, stored: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Decode a body as an object of this resource: check kind and version, and reject, warn about or drop unknown
        fields.

        `stored` is the stored object's metadata, already cleaned; a body with equal metadata is not cleaned again.
        """
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type Object)")
        kind, api_version = body.get("kind"), body.get("apiVersion")
        if resource.custom:
            return self._decode_custom(resource, body, options, stored)
        if (kind and kind != resource.kind) or (api_version and api_version != resource.api_version):
            raise errors.bad_request(
                f"{kind} in version {str(api_version)!r} cannot be handled as a {resource.kind}: "
                f"the API version in the data does not match the expected API version ({resource.api_version})"
                if kind in (None, resource.kind)
                else f"{kind} in version {str(api_version)!r} cannot be handled as a {resource.kind}"
            )
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = resource.strategy.clean(obj, resource)
        unknown += [path for path in _clean_metadata(obj, resource, stored) if path not in unknown]
        report_unknown([f'unknown field "{path}"' for path in unknown], resource, options)
        return obj

    def _decode_custom(
        self, resource: Resource, body: dict[str, Any], options: Options, stored: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Decode a custom object. One of another kind is not pruned: validation reports the wrong kind."""
        kind, api_version = body.get("kind"), body.get("apiVersion") or ""
        if not kind or not isinstance(kind, str):
            text = "the object provided is unrecognized"
            raise errors.bad_request(f"{text} (must be of type {resource.kind}): Object 'Kind' is missing")
        obj = {"apiVersion": api_version, "kind": kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = _clean_metadata(obj, resource, stored)
        if api_version == resource.api_version and kind == resource.kind:
            unknown += resource.strategy.clean(obj, resource)
        elif kind == resource.kind and str(api_version).startswith(f"{resource.group}/"):
            unknown += sorted(set(obj) - {"apiVersion", "kind", "metadata"})
        report_unknown([f'unknown field "{path}"' for path in unknown], resource, options)
        if api_version != resource.api_version:
            raise errors.bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        return obj

    def decode_patched(
        self, resource: Resource, body: Any, options: Options, stored: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Like `decode`, for the result of a patch: errors are reported as errors of the patch."""
        if resource.custom and isinstance(body, dict):
            self._require_patched_kind(resource, body)
        whole = copy_json(body) if options.field_validation == "Strict" else body  # decoding drops unknown fields
        try:
            obj = self.decode(resource, body, options, stored)
        except ApiError as failure:
            if failure.code != 400:
                raise
            message = failure.message.removeprefix(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            )
            raise invalid_patch_error(whole, message) from failure
        return obj

    def _require_patched_kind(self, resource: Resource, body: dict[str, Any]) -> None:
        version, kind = body.get("apiVersion"), body.get("kind")
        if not kind:
            raise invalid_patch_error(body, "Object 'Kind' is missing")
        if not version:
            raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
        if version != resource.api_version:
            cause = errors.invalid("apiVersion", version, f"must be {resource.api_version}")
            group = str(version).rpartition("/")[0]
            raise errors.unprocessable(str(kind), group, object_meta.metadata_of(body).get("name", ""), [cause])


def _clean_metadata(obj: dict[str, Any], resource: Resource, stored: dict[str, Any] | None) -> list[str]:
    if stored is not None and obj.get("metadata") == stored:
        return []
    return object_meta.clean_metadata(obj, resource)


def report_unknown(texts: list[str], resource: Resource, options: Options) -> None:
    if not texts or options.field_validation == "Ignore":
        return
    if options.field_validation == "Strict":
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(texts)}"
        )
    options.warnings.extend(texts)


def invalid_patch_error(body: Any, message: str) -> ApiError:
    """422 for a patch whose result is not a valid object."""
    return errors.unprocessable("", "", "", [errors.invalid("patch", errors.as_json(body), message)])
