"""Paths and media types in, verbs out: the embedded Kubernetes API as a plain ASGI application.

`App(api)` needs no framework and no lifespan; whoever builds the `KubeApi` starts and stops it. Every refusal,
expected or not, leaves as a Status.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from sqlalchemy import Engine

from matrixcontainer.kubeapi import access, documents, errors, list_options, listing, subresources
from matrixcontainer.kubeapi.accept import PROTOBUF, Answer, choose
from matrixcontainer.kubeapi.access import User
from matrixcontainer.kubeapi.asked import Deletion, Options, Outcome
from matrixcontainer.kubeapi.bodies import parse_body, parse_json, parse_yaml
from matrixcontainer.kubeapi.errors import ApiError
from matrixcontainer.kubeapi.impersonation import who_is_meant
from matrixcontainer.kubeapi.protobuf_write import NoProtobufForm, encode_body
from matrixcontainer.kubeapi.requests import (
    Receive,
    Request,
    Send,
    Target,
    parse_target,
    read_body,
    request_of,
    wish_of,
)
from matrixcontainer.kubeapi.resources import Resource
from matrixcontainer.kubeapi.responses import Response, as_json
from matrixcontainer.kubeapi.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.store import Store
from matrixcontainer.kubeapi.table import TableForm, partial, partial_form
from matrixcontainer.kubeapi.watch import Watch, WatchOptions

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


STANDARD_FIELDS = frozenset(("metadata.name", "metadata.namespace"))


class App:
    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        request = request_of(scope, receive)
        try:
            response = await self.answer(request)
        except errors.NoSuchPage as failure:
            response = Response(failure.TEXT.encode(), failure.code, "text/plain; charset=utf-8")
        except ApiError as failure:
            response = as_json(failure.status(), failure.code)
            response.headers |= failure.headers
        except (RecursionError, orjson.JSONEncodeError) as failure:
            refusal = errors.bad_request(f"the object is nested too deeply or holds what JSON cannot say: {failure}")
            response = as_json(refusal.status(), refusal.code)
        except Exception as failure:  # the last resort: a Status and a line in the log, never a bare 500
            self.api.failures.append(f"{request.method} {request.path}: {type(failure).__name__}: {failure}")
            self.api.report(failure, f"{request.method} {request.path}")
            response = as_json(errors.internal(f"{type(failure).__name__}: {failure}").status(), 500)
        await self._send(request, response, send)

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        headers = [
            (b"content-type", response.media.encode()),
            (b"cache-control", b"no-cache, private"),
        ]
        headers += [
            (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in response.headers.items()
        ]
        for text in dict.fromkeys(request.warnings):
            quoted = json.dumps(text, ensure_ascii=True)
            headers.append((b"warning", f"299 - {quoted}".encode()))
        if isinstance(response.body, bytes):
            headers.append((b"content-length", str(len(response.body)).encode()))
            await send({"type": "http.response.start", "status": response.code, "headers": headers})
            body = b"" if request.method == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": response.code, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await self._stream(request, response.body, send)

    async def _stream(self, request: Request, chunks: AsyncIterator[bytes], send: Send) -> None:
        """Pump a watch until it ends or the client goes."""
        pump = asyncio.ensure_future(self._pump(chunks, send))
        hang_up = asyncio.ensure_future(_until_disconnected(request.receive))
        try:
            await asyncio.wait((pump, hang_up), return_when=asyncio.FIRST_COMPLETED)
            if pump.done() and (failure := pump.exception()) is not None and not isinstance(failure, OSError):
                self.api.failures.append(f"watch {request.path}: {type(failure).__name__}: {failure}")
                self.api.report(failure, f"watch {request.path}")
        finally:
            for task in (pump, hang_up):
                task.cancel()
            await asyncio.gather(pump, hang_up, return_exceptions=True)
            await chunks.aclose()  # type: ignore[attr-defined]

    async def _pump(self, chunks: AsyncIterator[bytes], send: Send) -> None:
        async for chunk in chunks:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    # ---- routing

    async def answer(self, request: Request) -> Response:
        user = self.api.access.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        authorizer = self.api.authorizer
        if any(name.startswith("impersonate-") for name in request.headers):
            user = who_is_meant(user, request.headers, authorizer)
        request.user = user
        path = request.path
        target = parse_target(path)
        authorizer.demand(user, wish_of(request, target))
        if target is not None:
            return await self._resource(request, target)
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return documents.answer(self.api, request, path.rstrip("/") or "/")

    # ---- resources

    async def _resource(self, request: Request, target: Target) -> Response:
        resource = self.api.registry.find(target.group, target.version, target.plural)
        misplaced = resource and resource.namespaced != bool(target.namespace) and (target.name or target.namespace)
        if resource is None or target.rest or misplaced:
            raise errors.no_such_path() if self.api.registry.is_built_in(target.group) else errors.NoSuchPage()
        if resource.computed is not None:
            return resource.computed(self, request, resource, target)
        if resource.namespaced and not target.namespace and request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()  # a list of all namespaces can be read and watched, no more
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        if request.method in ("POST", "PUT", "PATCH", "DELETE"):
            await read_body(request)
        if target.subresource:
            return await subresources.answer(self, request, resource, target)
        if request.method in ("GET", "HEAD"):
            return await self._read(request, resource, target)
        if request.method == "POST" and not target.name:
            return await self._create(request, resource, target)
        if request.method == "PUT" and target.name:
            return await self._update(request, resource, target)
        if request.method == "PUT" and resource.custom:
            raise errors.bad_request("name must be provided")
        if request.method == "PATCH" and target.name:
            return await self._patch(request, resource, target)
        if request.method == "DELETE":
            return await (self._delete if target.name else self._delete_collection)(request, resource, target)
        raise errors.method_not_allowed()

    def allow(self, resource: Resource, verb: str) -> None:
        if verb not in resource.verbs:
            raise errors.method_not_allowed()

    # ---- reading

    async def _read(self, request: Request, resource: Resource, target: Target) -> Response:
        watching = target.watch or request.flag("watch")
        if target.name and not watching:
            self.allow(resource, "get")
            record = self.api.verbs.record(resource, target.namespace, target.name)
            answer = choose(request.accept)
            if not answer.form and answer.media == "application/json":
                return Response(resource.shown_bytes(record))
            return self.render(request, resource, resource.show(record), 200)
        self.allow(resource, "watch" if watching else "list")
        query = self._query(request, resource, target)
        if watching:
            return self._watch(request, resource, query)
        list_options.check_list(request.query)
        page = listing.list_page(self.api.store, resource, query)
        answer = choose(request.accept)
        if not answer.form and answer.media == "application/json":
            return Response(listing.render_list(resource, page))
        if answer.form == "Table":
            form = TableForm(resource, request.query.get("includeObject", ""), self.api.now)
            table = form.table([resource.show(record) for record in page.records], page.meta())
            return self._encoded(table | {"apiVersion": f"meta.k8s.io/{answer.version}"}, 200, answer)
        if answer.form:
            items = [partial(resource.show(record)) for record in page.records]
            for item in items:
                item |= {"apiVersion": f"meta.k8s.io/{answer.version}"}
            found = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{answer.version}"}
            return self._encoded(found | {"metadata": page.meta(), "items": items}, 200, answer)
        return self._encoded(orjson.loads(listing.render_list(resource, page)), 200, answer)

    def _query(self, request: Request, resource: Resource, target: Target) -> listing.Query:
        standard = not resource.custom and STANDARD_FIELDS.issuperset(resource.fields)
        fields = FieldSelector(request.query.get("fieldSelector", ""), resource.fields, standard)
        if target.name:
            fields = FieldSelector(f"metadata.name={target.name}", resource.fields)
        return listing.Query(
            namespace=target.namespace,
            labels=LabelSelector(request.query.get("labelSelector", "")),
            fields=fields,
            limit=request.number("limit"),
            token=request.query.get("continue", ""),
            revision=request.query.get("resourceVersion", ""),
            match=request.query.get("resourceVersionMatch", ""),
        )

    def _watch(self, request: Request, resource: Resource, query: listing.Query) -> Response:
        initial = request.flag("sendInitialEvents")
        list_options.check_watch(request.query)
        if initial:
            query.revision = ""
        answer = choose(request.accept)
        options = WatchOptions(
            timeout_s=float(request.number("timeoutSeconds")),
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_events=initial,
            form_name=answer.form.removesuffix("List"),
        )
        if answer.form == "Table":
            options.form = TableForm(resource, request.query.get("includeObject", ""), self.api.now)
        elif answer.form:
            options.form = partial_form
        key = (resource.group, resource.version, resource.plural)

        def gone() -> bool:
            return self.api.stopping or self.api.registry.find(*key) is None

        watch = Watch(self.api.store, resource, query, options, self.api.chance, gone)
        return Response(watch.lines(), media="application/json")

    # ---- writing

    def options(self, request: Request, subresource: str = "") -> Options:
        dry_run = request.query.get("dryRun", "")
        if dry_run not in ("", "All"):
            cause = errors.not_supported("dryRun", dry_run, ["All"])
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

    def parsed(self, request: Request, resource: Resource, options: Options) -> dict[str, Any]:
        """The body as an object of the resource, duplicate keys reported as the options want it."""
        duplicates: list[str] = []
        value = parse_body(request.body, request.media_type, duplicates)
        if duplicates and isinstance(value, dict):
            self.api.verbs.report_unknown([f'duplicate field "{path}"' for path in duplicates], resource, options)
        return value

    async def _create(self, request: Request, resource: Resource, target: Target) -> Response:
        self.allow(resource, "create")
        options = self.options(request)
        body = self.parsed(request, resource, options)
        if "list" not in resource.verbs:
            return subresources.review(self, request, resource, target, body)
        outcome = await self.api.verbs.create(resource, target.namespace, body, options)
        return self.outcome(request, resource, outcome)

    async def _update(self, request: Request, resource: Resource, target: Target, sub: str = "") -> Response:
        self.allow(resource, "update")
        options = self.options(request, sub)
        body = self.parsed(request, resource, options)
        outcome = await self.api.verbs.update(resource, target.namespace, target.name, body, options)
        return self.outcome(request, resource, outcome)

    async def _patch(self, request: Request, resource: Resource, target: Target, sub: str = "") -> Response:
        self.allow(resource, "patch")
        options = self.options(request, sub)
        kind, patch = self.parsed_patch(request, resource, options)
        verbs = self.api.verbs
        if kind == "apply":
            outcome = await verbs.apply(resource, target.namespace, target.name, patch, options)
        else:
            outcome = await verbs.patch(resource, target.namespace, target.name, kind, patch, options)
        return self.outcome(request, resource, outcome)

    def parsed_patch(self, request: Request, resource: Resource, options: Options) -> tuple[str, Any]:
        kind = PATCH_TYPES.get(request.media_type, "")
        if not kind or (kind == "strategic" and not resource.strategy.strategic):
            offered = [
                media for media, name in PATCH_TYPES.items() if name != "strategic" or resource.strategy.strategic
            ]
            raise errors.unsupported_media_type(offered)
        if options.force and kind != "apply":
            cause = errors.forbidden_field("force", "may not be specified for non-apply patch")
            raise errors.unprocessable("PatchOptions", "meta.k8s.io", "", [cause])
        duplicates: list[str] = []
        patch = (parse_yaml if kind == "apply" else parse_json)(request.body, duplicates)
        if duplicates:
            self.api.verbs.report_unknown([f'duplicate field "{path}"' for path in duplicates], resource, options)
        return kind, patch

    async def _delete(self, request: Request, resource: Resource, target: Target) -> Response:
        self.allow(resource, "delete")
        options = self.options(request)
        wish = self.deletion(request)
        outcome = await self.api.verbs.delete(resource, target.namespace, target.name, wish, options)
        if outcome.gone and not resource.strategy.returns_deleted:
            meta = outcome.obj["metadata"]
            details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
            details = {key: value for key, value in details.items() if value}
            return as_json(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            )
        return self.outcome(request, resource, outcome)

    def deletion(self, request: Request) -> Deletion:
        """DeleteOptions from the body, else from the query."""
        said: dict[str, Any] = {}
        if request.body.strip():
            value = parse_body(request.body, request.media_type, [])
            if not isinstance(value, dict):
                raise errors.bad_request("DeleteOptions must be an object")
            said = value
        said = {key: said.get(key, request.query.get(key)) for key in DELETE_KEYS} | {
            "preconditions": said.get("preconditions") or {}
        }
        propagation = said["propagationPolicy"] or ""
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            allowed = ["Foreground", "Background", "Orphan", ""]
            cause = errors.not_supported("propagationPolicy", propagation, allowed)
            raise errors.unprocessable("DeleteOptions", "meta.k8s.io", "", [cause])
        if said["orphanDependents"] is not None and not propagation:
            propagation = "Orphan" if str(said["orphanDependents"]).lower() == "true" else "Background"
        dry_run = said["dryRun"] or []
        dry_run = [dry_run] if isinstance(dry_run, str) else dry_run
        if any(word != "All" for word in dry_run):
            raise errors.unprocessable(
                "DeleteOptions", "meta.k8s.io", "", [errors.not_supported("dryRun", dry_run, ["All"])]
            )
        try:
            grace = int(said["gracePeriodSeconds"]) if said["gracePeriodSeconds"] is not None else None
        except (TypeError, ValueError):
            raise errors.bad_request("gracePeriodSeconds must be a number") from None
        if grace is not None and grace < 0:
            grace = 1
        conditions = said["preconditions"]
        return Deletion(
            propagation, grace, conditions.get("uid") or "", conditions.get("resourceVersion") or "", bool(dry_run)
        )

    async def _delete_collection(self, request: Request, resource: Resource, target: Target) -> Response:
        self.allow(resource, "deletecollection")
        options, wish = self.options(request), self.deletion(request)
        list_options.check_list(request.query)
        page = listing.list_page(self.api.store, resource, self._query(request, resource, target))
        for record in page.records:
            try:
                await self.api.verbs.delete(resource, record.key[1], record.key[2], wish, options)
            except ApiError as failure:
                if failure.code != 404:
                    raise
        return Response(listing.render_list(resource, page))

    # ---- answering

    def outcome(self, request: Request, resource: Resource, outcome: Outcome) -> Response:
        code = 201 if outcome.created else 200
        answer = choose(request.accept)
        if outcome.record is not None and not answer.form and answer.media == "application/json":
            return Response(resource.shown_bytes(outcome.record), code)
        return self.render(request, resource, outcome.obj, code)

    def render(self, request: Request, resource: Resource, obj: dict[str, Any], code: int) -> Response:
        answer = choose(request.accept)
        if answer.form == "Table":
            form = TableForm(resource, request.query.get("includeObject", ""), self.api.now)
            obj = form.table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
            obj["apiVersion"] = f"meta.k8s.io/{answer.version}"
        elif answer.form:
            obj = partial(obj) | {"apiVersion": f"meta.k8s.io/{answer.version}"}
        return self._encoded(obj, code, answer)

    def _encoded(self, value: Any, code: int, answer: Answer) -> Response:
        if answer.media == "application/yaml":
            import yaml

            return Response(yaml.safe_dump(value, sort_keys=False).encode(), code, "application/yaml")
        if answer.media == PROTOBUF:
            try:
                return Response(encode_body(value), code, PROTOBUF)
            except NoProtobufForm:
                raise errors.not_acceptable("application/json, application/yaml") from None
        return as_json(value, code)


def build_app(
    engine: Engine, now: Callable[[], float], chance: random.Random, tokens: dict[str, User] | None = None
) -> App:
    """An application over a migrated database; `app.api.start()` and `stop()` are the caller's to await.

    `tokens` maps bearer tokens to users. `now` gives seconds since the epoch, in whatever time the caller lives.
    """
    key = chance.randbytes(32)
    return App(KubeApi(Store(engine, now), now, chance, access.Access(tokens or {}, key, now)))


DELETE_KEYS = ("propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun")


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
