"""A verb that changes something, as its function declares it: the parameters of its route, and how a request becomes
the function's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from fastapi import Depends, Request

from matrixcommon.api.authorization import Caller, RequestCaller, ResourceKind, Scope
from matrixcommon.api.fast_path import FastRoute
from matrixcommon.api.list_params import IdempotencyKey, IfMatch, IfNoneMatch, ValidateOnly
from matrixcommon.api.mutations import RowKey, generated_name
from matrixcommon.model.errors import Malformed
from matrixcommon.model.resource_model import ApiModel

if TYPE_CHECKING:
    from matrixcommon.persistence.resource_row import ResourceRow

Parameter = inspect.Parameter


async def _no_if_match(request: Request) -> None:
    if "if-match" in request.headers:
        raise Malformed(f"{request.url.path} has no etag: leave If-Match out", field="If-Match")


WITHOUT_IF_MATCH = [Depends(_no_if_match)]
"""Dependencies of routes that change unversioned resources, where a condition would be silently ignored."""


async def _no_if_none_match(request: Request) -> None:
    if "if-none-match" in request.headers:
        asked = f"{request.method} {request.url.path}"
        raise Malformed(f"{asked} does not create a named resource: leave If-None-Match out", field="If-None-Match")


WITHOUT_IF_NONE_MATCH = [Depends(_no_if_none_match)]
"""Dependencies of changing routes that never create the named resource, for the same reason."""

SHARED_PARAMETERS = {
    "caller": Parameter("caller", Parameter.KEYWORD_ONLY, annotation=RequestCaller),
    "validate_only": Parameter("validate_only", Parameter.KEYWORD_ONLY, annotation=ValidateOnly, default=False),
    "if_match": Parameter("if_match", Parameter.KEYWORD_ONLY, annotation=IfMatch, default=None),
    "if_none_match": Parameter("if_none_match", Parameter.KEYWORD_ONLY, annotation=IfNoneMatch, default=None),
    "idempotency_key": Parameter("idempotency_key", Parameter.KEYWORD_ONLY, annotation=IdempotencyKey, default=None),
}
"""Parameters that changing routes have in common."""


@dataclass(frozen=True)
class DeclaredChange:
    """A verb that changes something, as its function declares it."""

    kind: ResourceKind
    verb: str
    takes: Mapping[str, Parameter]
    """All parameters of the function."""
    own: tuple[Parameter, ...]
    """Those that are not `SHARED_PARAMETERS`."""
    key: str
    """The name of the parameter for the resource's key; empty if a new resource is created."""
    body: Parameter | None
    row: Callable[[Any], RowKey] | None
    """The row of a key, against which `If-Match` is compared."""
    returns: Any

    @classmethod
    def of(
        cls, kind: ResourceKind, verb: str, action: Callable[..., Any], row: Callable[[Any], RowKey] | None
    ) -> DeclaredChange:
        """`row`: the row of a key; by default that of the kind, if it has one and the verb is about a resource."""
        signature = inspect.signature(action, eval_str=True)
        own = tuple(each for each in signature.parameters.values() if each.name not in SHARED_PARAMETERS)
        key = "" if verb == "CREATE" else own[0].name
        body = next((each for each in own if _is_model(each.annotation)), None)
        if row is None and key and kind.row is not None:
            row = partial(_row_key, kind.row)
        return cls(kind, verb, signature.parameters, own, key, body, row, signature.return_annotation)

    def claim(self, caller: Caller, given: dict[str, Any], idempotency_key: str | None) -> str | None:
        """Put key and request into one project of the caller, and name a new resource after its idempotency key.
        Returns that name, if it was made."""
        body = self.body
        if body is None:
            return None
        if body.annotation is self.kind.request and self.kind.scope in (Scope.PROJECT, Scope.SHARED):
            given |= _claim_request(caller, self.verb, self.key, body.name, given)
        if idempotency_key is None or given[body.name].name is not None:
            return None
        made = generated_name(self.kind.collection.removesuffix("s"), caller, idempotency_key)
        given[body.name] = given[body.name].model_copy(update={"name": made})
        return made

    def signature(self) -> inspect.Signature:
        """The parameters of the route."""
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in self.own]
        if self.key:
            parameters[0] = parameters[0].replace(annotation=self.kind.named)
        return inspect.Signature([*parameters, *(SHARED_PARAMETERS[each] for each in self._shared)])

    def refused_conditions(self) -> list[Any]:
        """Dependencies that refuse conditions which the route does not honour."""
        without_if_match = [] if self._is_versioned else WITHOUT_IF_MATCH
        without_if_none_match = [] if "if_none_match" in self._shared else WITHOUT_IF_NONE_MATCH
        return [*without_if_match, *without_if_none_match]

    def fast_route(self, handle: Callable[..., Any], takes_project: bool) -> FastRoute:
        method, path = self.kind.route(self.verb, "")
        sent = (self.body.name, self.body.annotation) if self.body is not None else None
        return FastRoute(method, path, self.key, sent, handle, takes_project)

    @property
    def _is_versioned(self) -> bool:
        return self.row is not None or "if_match" in self.takes

    @property
    def _shared(self) -> list[str]:
        shared = ["caller", "validate_only"]
        shared += ["if_match"] if self._is_versioned else []
        shared += ["if_none_match"] if self._is_versioned and self.verb == "PUT" else []
        shared += ["idempotency_key"] if self.kind.request is not None and self.verb == "CREATE" else []
        return shared


def _row_key(row: type[ResourceRow], key: str) -> RowKey:
    return row, key


def _claim_request(caller: Caller, verb: str, key: str, body: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with key and request in one project of the caller, after checking that the caller may access
    everything that the request refers to. Only for PUT does the key follow a project named in the body."""
    claimed, request = caller.claim(given[key] if key else caller.key("new"), given[body])
    for each in (claimed, *request.references):
        caller.check(each)
    return {body: request, **({key: claimed} if verb == "PUT" else {})}


def _is_model(annotation: Any) -> bool:
    kinds = get_args(annotation) or (annotation,)
    return any(isinstance(each, type) and issubclass(each, ApiModel) for each in kinds)
