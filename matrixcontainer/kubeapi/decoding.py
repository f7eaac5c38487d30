"""From a body to an object of a resource: version, kind, unknown fields, namespace; and the last word on validity."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi import errors, object_meta
from matrixcontainer.kubeapi.asked import Options
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.resources import Resource


class Decoding:
    """The part of the verbs that reads and judges; it writes nothing."""

    namespace_state: Callable[[str], str]

    def decode(self, resource: Resource, body: dict[str, Any], options: Options) -> dict[str, Any]:
        """A body as an object of this resource: kind and version checked; unknown fields refused, warned of or dropped."""  # noqa: E501
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type Object)")
        kind, api_version = body.get("kind"), body.get("apiVersion")
        if resource.custom and not kind:
            raise errors.bad_request("Object 'Kind' is missing in the body of the request")
        if (kind and kind != resource.kind) or (api_version and api_version != resource.api_version):
            raise errors.bad_request(
                f"the API version in the data ({api_version}, Kind={kind}) does not match the expected API version "
                f"({resource.api_version}, Kind={resource.kind})"
            )
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = resource.strategy.clean(obj, resource)
        unknown += [path for path in object_meta.clean_metadata(obj, resource) if path not in unknown]
        told = sorted(unknown) if resource.custom else unknown
        self.report_unknown([f'unknown field "{path}"' for path in told], resource, options)
        return obj

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
        stated = meta.get("namespace", "")
        if stated and stated != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)

    def _demand_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        state = self.namespace_state(namespace)
        if state == "":
            raise errors.not_found("namespaces", "", namespace)
        if state == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise errors.forbidden(resource.plural, resource.group, name, why, [cause])

    def _demand_valid(self, resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None) -> None:
        found = object_meta.check_metadata(obj, resource)
        if old is not None:
            known = set(object_meta.check_metadata(old, resource))
            found = [cause for cause in found if cause not in known] + object_meta.check_metadata_update(obj, old)
        found += resource.strategy.validate(obj, old)
        if found:
            told = resource.strategy.told_group
            group = resource.group if told is None else told
            raise errors.unprocessable(resource.kind, group, obj["metadata"].get("name", ""), found)
