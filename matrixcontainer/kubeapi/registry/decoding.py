"""From a body to an object of a resource: version, kind, unknown fields, namespace; and the last word on validity."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError, Cause
from matrixcontainer.kubeapi.meta.go_json import as_printed, compact
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.schema.types import schema_of


class Decoding:
    """The part of the verbs that reads and judges; it writes nothing."""

    namespace_state: Callable[[str], str]
    kind_of: Callable[[str, str], Resource | None]

    def decode(self, resource: Resource, body: dict[str, Any], options: Options) -> dict[str, Any]:
        """A body as an object of this resource: kind and version checked; unknown fields refused, warned of or dropped."""  # noqa: E501
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type Object)")
        kind, api_version = body.get("kind"), body.get("apiVersion")
        if resource.custom:
            return self._decode_custom(resource, body, options)
        if (kind and kind != resource.kind) or (api_version and api_version != resource.api_version):
            raise errors.bad_request(self._another(resource, str(api_version or resource.api_version), str(kind), body))
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = resource.strategy.clean(obj, resource)
        unknown += [path for path in object_meta.clean_metadata(obj, resource) if path not in unknown]
        self.report_unknown([f'unknown field "{path}"' for path in unknown], resource, options)
        return obj

    def _another(self, resource: Resource, api_version: str, kind: str, body: dict[str, Any]) -> str:
        """Why what was sent cannot be an object of this built-in resource."""
        group, _, version = api_version.rpartition("/")
        text = f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
        meant = self.kind_of(api_version, kind)
        if meant is None or meant.custom:
            shown = api_version if group else version
            return f'{text}no kind "{kind}" is registered for version "{shown}" in scheme "pkg/runtime/scheme.go:110"'
        try:
            meant.strategy.clean(copy_json(body), meant)
        except errors.ApiError as failure:
            return text + failure.message.partition(f"cannot be handled as a {kind}: ")[2]
        if meant.kind == resource.kind:
            return f"the API version in the data ({api_version}) does not match the expected API version ({resource.api_version})"  # noqa: E501
        return f"{text}converting ({meant.version}.{kind}) to (v1.{resource.kind}): unknown conversion"

    def _decode_custom(self, resource: Resource, body: dict[str, Any], options: Options) -> dict[str, Any]:
        """An object of another kind is left as it is: that it has another kind is told when it is judged."""
        kind, api_version = body.get("kind"), body.get("apiVersion") or ""
        if not kind or not isinstance(kind, str):
            raise errors.bad_request(_without_kind(resource.kind, options.body or compact(body)))
        obj = {"apiVersion": api_version, "kind": kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = object_meta.clean_metadata(obj, resource)
        if api_version == resource.api_version and kind == resource.kind:
            unknown += resource.strategy.clean(obj, resource)
        elif kind == resource.kind and str(api_version).startswith(f"{resource.group}/"):
            unknown += sorted(set(obj) - {"apiVersion", "kind", "metadata"})
        self.report_unknown([f'unknown field "{path}"' for path in unknown], resource, options)
        if api_version != resource.api_version:
            raise errors.bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        return obj

    def decode_patched(self, resource: Resource, body: Any, options: Options) -> dict[str, Any]:
        """The same for what a patch made of an object: what is wrong with it is wrong with the patch."""
        if resource.custom and isinstance(body, dict):
            self._demand_kind_of_patched(resource, body)
        whole = copy_json(body) if options.field_validation == "Strict" else body  # decoding drops what is unknown
        try:
            obj = self.decode(resource, body, options)
        except ApiError as failure:
            if failure.code != 400:
                raise
            why = failure.message.removeprefix(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            )
            typed = not resource.custom and isinstance(body, dict)
            printed = _in_go_order(whole, resource) if typed else whole
            raise broken_patch(printed, why, typed) from failure
        return obj

    def _demand_kind_of_patched(self, resource: Resource, body: dict[str, Any]) -> None:
        version, kind = body.get("apiVersion"), body.get("kind")
        if not kind:
            raise broken_patch(body, f"Object 'Kind' is missing in '{compact(body).decode()}'", typed=False)
        if not version:
            raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
        if version != resource.api_version:
            cause = errors.invalid("apiVersion", version, f"must be {resource.api_version}")
            group = str(version).rpartition("/")[0]
            raise errors.unprocessable(str(kind), group, (body.get("metadata") or {}).get("name", ""), [cause])

    def demand_name(self, obj: dict[str, Any], namespace: str, name: str) -> None:
        """What was put or patched to a name must bear it."""
        meta = obj["metadata"]
        if not meta.get("name"):
            raise errors.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        if meta["name"] != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        if namespace and meta.get("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    def report_unknown(self, texts: list[str], resource: Resource, options: Options) -> None:
        if not texts or options.field_validation == "Ignore":
            return
        if options.field_validation == "Strict":
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"strict decoding error: {', '.join(texts)}"
            )
        options.warnings.extend(texts)

    def _settle_namespace(self, resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        stated = meta.get("namespace", "")
        if stated and stated != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = namespace

    def _demand_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        state = self.namespace_state(namespace)
        if state == "":
            raise errors.not_found("namespaces", "", namespace)
        if state == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise errors.forbidden(resource.plural, resource.group, name, why, [cause])

    def _demand_valid(
        self, resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None, status: bool = False
    ) -> None:
        if obj["kind"] != resource.kind:
            cause = errors.invalid("kind", obj["kind"], f"must be {resource.kind}")
            raise errors.unprocessable(obj["kind"], resource.group, obj["metadata"].get("name", ""), [cause])
        found: list[Cause] = []
        if old is None:
            found = object_meta.check_metadata(obj, resource)
        elif object_meta.changed(obj, old):
            whole = object_meta.check_metadata(obj, resource)
            found = whole * (1 + resource.strategy.judged_whole) + object_meta.check_metadata_update(obj, old)
        if status and old is not None:
            found += resource.strategy.validate_status(obj, old)
        else:
            found += resource.strategy.validate(obj, old)
        if found:
            text = resource.strategy.reported_group
            group = resource.group if text is None else text
            raise errors.unprocessable(resource.kind, group, obj["metadata"].get("name", ""), found)


SUMMARY_LENGTH = 30


def _in_go_order(body: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """The object as a patch leaves it: its own keys sorted, those of metadata in the order of their struct."""
    found = {key: body[key] for key in sorted(body)}
    if isinstance(meta := body.get("metadata"), dict):
        known = [key for key in schema_of("meta.v1.ObjectMeta").properties if key in meta]
        found["metadata"] = {key: meta[key] for key in [*known, *(set(meta) - set(known))]}
    return found


def broken_patch(body: Any, why: str, typed: bool = True) -> ApiError:
    """422 for an object that no longer is one after it was patched."""
    text = (as_printed if typed else compact)(body).decode()
    return errors.unprocessable("", "", "", [errors.invalid("patch", text, why)])


def _without_kind(kind: str, body: bytes) -> str:
    text = body.decode(errors="replace")
    summary = f"{text[:SUMMARY_LENGTH]} ..." if len(text) > SUMMARY_LENGTH else text
    return f"the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{text}' ({summary})"  # noqa: E501
