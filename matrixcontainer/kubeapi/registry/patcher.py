"""Partial updates: JSON, merge and strategic merge patches, and server-side apply."""

from functools import partial
from typing import Any

from matrixcontainer.kubeapi.meta import errors, timestamps
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.patch import apply, patches
from matrixcontainer.kubeapi.patch.typed_value import validate_typed
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.decoder import Decoder, report_unknown
from matrixcontainer.kubeapi.registry.options import Options, Outcome
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.validation import require_name, set_namespace
from matrixcontainer.kubeapi.registry.writer import RETRIES_MAX, Writer
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.schema.validation import type_of


class Patcher:
    """Applies patches to the latest state, and retries on conflicts."""

    def __init__(self, decoder: Decoder, writer: Writer) -> None:
        self._decoder, self._writer = decoder, writer

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        patch: Any,
        options: Options,
    ) -> Outcome:
        """`patch_type` is json, merge or strategic; the patch is already parsed."""
        warnings_before = len(options.warnings)

        def change(old: dict[str, Any]) -> dict[str, Any]:
            del options.warnings[warnings_before:]
            if patch_type == "json":
                report_unknown(patches.unknown_fields(patch), resource, options)
                new = patches.json_patch(old, patch)
            elif patch_type == "merge":
                new = patches.merge_patch(old, require_map(patch, patch_type))
            else:
                require_map(patch, patch_type)
                new = patches.strategic_patch(old, patch, resource.schema)
                new |= {"apiVersion": resource.api_version, "kind": resource.kind}  # a patch cannot change them
            patched = self._decoder.decode_patched(resource, new, options, old["metadata"])
            require_name(patched, namespace, name)
            return patched

        return await self._writer.modify(resource, namespace, name, change, options)

    async def apply(
        self, resource: Resource, namespace: str, name: str, config: dict[str, Any], options: Options
    ) -> Outcome:
        """Server-side apply; creates the object if it does not exist."""
        if not options.field_manager:
            cause = errors.required("fieldManager", "is required for apply patch")
            raise errors.unprocessable("PatchOptions", "meta.k8s.io", "", [cause])
        if not isinstance(config, dict):
            raise errors.bad_request(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
                f"{type_of(config)} into Go value of type map[string]interface {{}}"
            )
        applied_kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
        if applied_kind != (resource.api_version, resource.kind):
            raise errors.bad_request(f"invalid object type: {applied_kind[0] or '/'}, Kind={applied_kind[1]}")
        if object_meta.metadata_of(config).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        validate_typed(config, resource.schema, resource.api_version)
        sent_config = copy_json(config)
        config = self._decoder.decode(resource, config, options)
        _restore_nulls(config, sent_config)
        meta = config["metadata"]
        if meta.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        meta["name"] = name
        expected_revision = object_meta.requested_revision(config, resource, name)
        meta.pop("resourceVersion", None)
        set_namespace(resource, namespace, meta)
        _drop_unwritten_fields(resource, config, options)
        apply_once = partial(
            self._apply_once, resource, namespace, name, config, sent_config, expected_revision, options
        )
        key, warnings_before = (resource.storage, namespace, name), len(options.warnings)
        for _ in range(RETRIES_MAX):
            present = self._writer.store.latest(key) is not None
            try:
                return await apply_once(present)
            except ApiError as failure:
                presence_changed = present != (self._writer.store.latest(key) is not None)
                if not presence_changed or failure.reason not in ("AlreadyExists", "NotFound"):
                    raise
            del options.warnings[warnings_before:]
        raise errors.conflict(resource.plural, resource.group, name)

    async def _apply_once(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        config: dict[str, Any],
        sent_config: dict[str, Any],
        expected_revision: str,
        options: Options,
        present: bool,
    ) -> Outcome:
        """Update the object if it is `present`, otherwise create it. The caller retries if it was created or deleted
        meanwhile, as admission takes time."""
        if not present:
            if options.subresource:
                raise errors.not_found(resource.plural, resource.group, name)
            if uid := config["metadata"].get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise errors.conflict(resource.plural, resource.group, name, why)
            if resource.namespaced:
                self._writer.require_namespace(resource, namespace, name)
            now = timestamps.timestamp(self._writer.now())
            apply_options = apply.ApplyOptions(options.manager, "", options.force, now, sent_config)
            obj = apply.apply_config(None, config, resource.schema, apply_options)
            return await self._writer.insert(
                resource, namespace, await self._writer.prepare_new(resource, obj, options, True), options
            )

        def change(old: dict[str, Any]) -> dict[str, Any]:
            now = timestamps.timestamp(self._writer.now())
            sub = options.subresource
            apply_options = apply.ApplyOptions(options.manager, sub, options.force, now, sent_config)
            merged = apply.apply_config(old, config, resource.schema, apply_options)
            if expected_revision and expected_revision != old["metadata"]["resourceVersion"]:
                raise errors.conflict(resource.plural, resource.group, name)
            return merged

        return await self._writer.modify(resource, namespace, name, change, options, track=False)


def require_map(patch: Any, patch_type: str) -> dict[str, Any]:
    """Return a merge patch, which must be a map. Raises 400 otherwise."""
    if isinstance(patch, dict):
        return patch
    why = f"json: cannot unmarshal {type_of(patch)} into Go value of type map[string]interface {{}}"
    raise errors.bad_request(why if patch_type == "strategic" else f"error decoding patch: {why}")


def _drop_unwritten_fields(resource: Resource, config: dict[str, Any], options: Options) -> None:
    """Drop fields that the endpoint does not write, so that apply does not own them: /status writes only the status,
    the main endpoint everything else."""
    if options.subresource == "status":
        for key in set(config) - {"apiVersion", "kind", "metadata", "status"}:
            del config[key]
        if not resource.custom:
            config["metadata"] = {k: v for k, v in config["metadata"].items() if k in ("name", "namespace", "uid")}
    elif resource.status:
        config.pop("status", None)


def _restore_nulls(config: Any, sent: Any) -> None:
    """Put back the nulls that decoding dropped: an applied null is owned by its manager."""
    if isinstance(config, dict) and isinstance(sent, dict):
        for key, value in sent.items():
            if value is None:
                config.setdefault(key, None)
            elif key in config and key != "metadata":
                _restore_nulls(config[key], value)
