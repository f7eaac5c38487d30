"""Authorization of all requests, decided in one place.

A resource kind is declared once: its collection, who owns its resources (`Scope`), and which roles may use which verbs.
A service's `AccessRules` consist of its kinds; every route must be among them, or the service does not start. Before a
route's handler runs, the guard has checked the caller's role and replaced the name in the path with the resource's key
(see `resource_key`). A caller can thus only address resources of projects that it may act for; others do not exist for
it (404). Lists are restricted to the same projects (`list_params`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from matrixcommon.api.reports import UnreadableReport
from matrixcommon.api.storable_text import refuse_nul
from matrixcommon.model.errors import Forbidden, InvalidField, MatrixError, NotFound
from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.resource_key import DEFAULT_PROJECT, key_of, name_of, project_of, resolve
from matrixcommon.model.resource_model import ApiModel

if TYPE_CHECKING:  # users of the access rules alone need no database
    from matrixcommon.persistence.resource_row import ResourceRow

Body = TypeVar("Body", bound=ApiModel)
Answer = TypeVar("Answer")

ROLES = ("viewer", "editor", "admin", "agent", "user")
EVERY_PROJECT = "*"
"""The project of a token that acts for all projects, with the rights of its role."""

VIEWERS = frozenset({"viewer", "editor", "admin"})
EDITORS = frozenset({"editor", "admin"})
ADMINS = frozenset({"admin"})
AGENTS = frozenset({"agent", "admin"})
USERS = frozenset({"user", "editor", "admin"})

READ = {"LIST": VIEWERS, "GET": VIEWERS}
EDITABLE = {**READ, "PUT": EDITORS, "DELETE": EDITORS}
ADMIN_EDITABLE = {**READ, "PUT": ADMINS, "DELETE": ADMINS}
"""Verbs of most kinds: read-only; managed by editors of the owning project; managed by admins."""

REDACTED_NAME = "(another project's)"
"""Replaces names of resources that belong to projects which the caller may not see."""


class Scope(Enum):
    """Who owns a kind's resources."""

    PROJECT = "project"  # each belongs to a project and is invisible to others
    SHARED = "two projects"  # belongs to a project and concerns another; its handlers decide who sees it
    PHYSICAL = "physical"  # belongs to nobody; its holder is shown only to the holder's project
    ITSELF = "is a project's"  # named after the project that it is about
    MIXED = "physical or project"  # some belong to a project, the others to nobody
    NODE = "node"  # an agent's, for the nodes that its token covers
    SERVICE = "service"  # of the service as a whole


@dataclass(frozen=True)
class Principal:
    """The identity behind a token. `nodes`: a pattern of the nodes that an agent may report for; `expires_at`: wall
    time."""

    name: str
    project: str
    role: str
    nodes: str = ""
    expires_at: float | None = None

    @property
    def everywhere(self) -> bool:
        """Whether it acts for all projects."""
        return self.role == "admin" or self.project == EVERY_PROJECT

    @property
    def own_project(self) -> str:
        return DEFAULT_PROJECT if self.project == EVERY_PROJECT else self.project

    def sees(self, project: str | None) -> bool:
        return self.everywhere or project == self.project

    def may_report_for(self, node: str) -> bool:
        """Whether it may report for this node."""
        return self.role == "admin" or (self.role == "agent" and bool(self.nodes) and fnmatchcase(node, self.nodes))


ANONYMOUS = Principal("anyone", DEFAULT_PROJECT, "admin")
"""The principal of every request if there are no tokens."""


@dataclass(frozen=True)
class Rule:
    """The access rule of one route: allowed roles, the owner of the resource, whether it changes anything. `view`: the
    view in its lists."""

    method: str
    path: str
    kind: str
    roles: frozenset[str]
    scope: Scope
    mutates: bool
    view: type[ApiModel] | None = None
    holders: tuple[str, ...] = ()

    def admit(self, principal: Principal, project: str | None = None) -> Caller:
        """Return the caller if its role is allowed. `project`: the one named in the request, if any. Raises Forbidden,
        InvalidField, NotFound."""
        if principal.role not in self.roles:
            raise Forbidden(
                f"{principal.name} is {principal.role} of project {principal.project} and may not "
                f"{self.method} {self.path.replace('{}', 'NAME')}"
            )
        if project is not None:
            if not RESOURCE_NAME.fullmatch(project):
                raise InvalidField(f"{project[:80]!r} is not a valid project name", field="project")
            decided_later = self.scope is Scope.SHARED and "{}" in self.path
            if not decided_later and not principal.sees(project):
                raise NotFound(f"there is no project {project!r} here", field="project")
        return Caller(principal, self, project)


@dataclass(frozen=True)
class Caller:
    """The caller of a request: the principal, the route's rule, and the project named in the request, if any."""

    principal: Principal
    rule: Rule
    named: str | None = None

    @property
    def project(self) -> str:
        """The project that names in the request belong to."""
        return self.named or self.principal.own_project

    def key(self, name: str) -> str:
        return key_of(self.project, name)

    def resolve(self, text: str) -> str:
        """The key for a reference in the request. Raises NotFound if it is in a project that the caller may not see."""
        key = resolve(text, self.project)
        self.check(key, text)
        return key

    def check(self, key: str, named: str = "") -> None:
        """Raise NotFound if the key is in a project that the caller may not see. `named`: the reference as sent."""
        if not self.sees(project_of(key)):
            raise NotFound(f"there is no {(named or key)[:80]!r}")

    def sees(self, project: str | None) -> bool:
        """Whether lists show resources of this project."""
        if self.named is not None and project != self.named:
            return False
        return self.principal.sees(project)

    @property
    def can_see_all(self) -> bool:
        agent = self.principal.role == "agent" and self.principal.nodes != "*"
        return self.named is None and self.principal.everywhere and not agent

    def claim(self, key: str, body: Body) -> tuple[str, Body]:
        """The key and the body of a desired resource, in one project. The body may name another project that the caller
        sees."""
        project = project_of(key)
        named = getattr(body, "project", project)
        if "project" in body.model_fields_set and named != project:
            if self.named is not None:
                raise InvalidField(f"?project={self.named} contradicts project {named} in the body", field="project")
            if not RESOURCE_NAME.fullmatch(named):
                raise InvalidField(f"{named[:80]!r} is not a valid project name", field="project")
            if not self.principal.sees(named):
                raise NotFound(f"there is no project {named!r} here", field="project")
            key = key_of(named, name_of(key))
            project = named
        return key, body.in_project(project)

    def answer_reports(
        self,
        reports: Sequence[Any],
        take: Callable[[list[Any]], Sequence[Answer]],
        refuse: Callable[[str, str, str], Answer],
    ) -> list[Answer]:
        """The answers to a batch of agents' reports, one each: reports that are invalid, or for nodes that the token
        does not cover, are answered by `refuse(node, reason, message)`, the others by `take`."""
        why = [self._refusal(each) for each in reports]
        taken = iter(take([each for each, reason in zip(reports, why, strict=True) if reason is None]))
        return [
            next(taken) if reason is None else refuse(str(each.node), *reason)
            for each, reason in zip(reports, why, strict=True)
        ]

    def _refusal(self, report: Any) -> tuple[str, str] | None:
        if not self.principal.may_report_for(report.node):
            return "Forbidden", f"this token does not speak for {report.node}"
        return ("InvalidField", report.message) if isinstance(report, UnreadableReport) else None

    def hide(self, document: dict[str, Any]) -> dict[str, Any]:
        """A view without names of other projects' resources, which are in the fields that the kind declares as
        `holders`."""
        if self.principal.everywhere or not self.rule.holders:
            return document
        return redact(document, self.rule.holders, self.principal.sees)


def redact(document: dict[str, Any], fields: Iterable[str], sees: Callable[[str], bool]) -> dict[str, Any]:
    """A document with keys in `fields`, at any depth, replaced by TAKEN unless `sees` accepts their project; also where
    they occur in texts, and where such a field is a mapping with them as keys."""
    foreign: set[str] = set()

    def collect(value: Any, inside: bool) -> None:
        if isinstance(value, dict):
            for name, child in value.items():
                collect(child, name in fields)
        elif isinstance(value, list):
            for child in value:
                collect(child, inside)
        elif inside and isinstance(value, str) and not sees(project_of(value)):
            foreign.add(value)

    collect(document, False)
    if not foreign:
        return document
    names = re.compile(
        r"(?<![-\w/.])(" + "|".join(map(re.escape, sorted(foreign, key=len, reverse=True))) + r")(?![-\w/])"
    )

    def shown(value: Any, by_key: bool = False) -> Any:
        if isinstance(value, dict):
            return {
                REDACTED_NAME if by_key and name in foreign else name: shown(child, name in fields)
                for name, child in value.items()
            }
        if isinstance(value, list):
            return [shown(child) for child in value]
        return names.sub(REDACTED_NAME, value) if isinstance(value, str) else value

    return {name: shown(value, name in fields) for name, value in document.items()}


@dataclass(frozen=True)
class ResourceKind:
    """A collection under /v1, and its verbs.

    A verb is a method and a suffix of the resource's path: `LIST` and `CREATE` apply to the collection, `PUT`,
    `GET /flows`, `POST :renew` to one resource. `queries` are POST verbs that change nothing. `view` declares the
    fields that lists can be filtered and ordered by, `request` the body of a request for a resource in the caller's
    project, `row` its table row, if it has one, and `named` the type of names; `holders` are the fields of a physical
    resource's view that name its holder.
    """

    collection: str
    scope: Scope
    verbs: Mapping[str, frozenset[str]]
    view: type[ApiModel] | None = None
    holders: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    request: type[ApiModel] | None = None
    row: type[ResourceRow] | None = None
    named: Any = str

    @property
    def singular(self) -> str:
        """The singular noun in words: `switch`, `recovery policy`."""
        words = self.collection.replace("-", " ")
        if words.endswith("ies"):
            return f"{words[:-3]}y"
        return words[:-2] if words.endswith(("ches", "sses")) else words.removesuffix("s")

    def route(self, verb: str, parameter: str = "{}") -> tuple[str, str]:
        """The method and path of a verb."""
        method, _, rest = verb.partition(" ")
        if method in ("LIST", "CREATE"):
            return {"LIST": "GET", "CREATE": "POST"}[method], f"/v1/{self.collection}"
        return method, f"/v1/{self.collection}/{parameter}{rest}"

    def rules(self) -> Iterable[Rule]:
        for verb, roles in self.verbs.items():
            method, path = self.route(verb)
            mutates = method != "GET" and verb not in self.queries
            view = self.view if verb == "LIST" else None
            yield Rule(method, path, self.collection, roles, self.scope, mutates, view, self.holders)


def kinds_in(module: Mapping[str, Any]) -> tuple[ResourceKind, ...]:
    """The kinds declared in a module, given its `globals()`."""
    return tuple(each for each in module.values() if isinstance(each, ResourceKind))


PARAMETER = re.compile(r"\{[^}]*\}")


@dataclass
class AccessRules:
    """The access rules of a service: its kinds, and rules of routes outside of them."""

    service: str
    kinds: tuple[ResourceKind, ...]
    others: tuple[Rule, ...] = ()
    by_route: dict[tuple[str, str], Rule] = field(init=False)

    def __post_init__(self) -> None:
        rules = [*(rule for kind in self.kinds for rule in kind.rules()), *self.others]
        self.by_route = {(rule.method, rule.path): rule for rule in rules}
        if len(self.by_route) != len(rules):
            raise ValueError(f"{self.service} declares a route twice")

    def find(self, method: str, path: str) -> Rule | None:
        """The rule of a route, by its path with parameters in braces."""
        return self.by_route.get(("GET" if method == "HEAD" else method, PARAMETER.sub("{}", path)))

    def check(self, routers: Iterable[APIRouter]) -> None:
        """Raise LookupError for a route that is not declared, a declaration without a route, or a changing route
        without `validateOnly`."""
        seen = set()
        for route in (each for router in routers for each in router.routes):
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                rule = self.find(method, route.path)
                if rule is None:
                    raise LookupError(f"{self.service}: there is no access rule for {method} {route.path}")
                if not any(isinstance(each.dependency, Guard) for each in route.dependencies):
                    raise LookupError(f"{self.service}: {method} {route.path} is not GUARDED")
                seen.add((rule.method, rule.path))
                if rule.mutates and "validate_only" not in signature(route.endpoint).parameters:
                    raise LookupError(f"{self.service}: {method} {route.path} does not take validateOnly")
        if missing := set(self.by_route) - seen:
            raise LookupError(f"{self.service} has no routes for the rules {sorted(missing)}")


RequestCheck = Callable[[Request], Awaitable[None]]


class Guard:
    """The dependency of every route: authorizes the request by the application's rules (`create_app`), then applies
    the router's refusals of invalid requests. A single dependency, since FastAPI inspects each one of every route."""

    def __init__(self, *refusals: RequestCheck) -> None:
        self._refusals = refusals

    async def __call__(self, request: Request) -> None:
        _authorize(request)
        for refuse in self._refusals:
            await refuse(request)


GUARDED = (Depends(Guard()),)
"""The dependencies of a router without refusals of its own."""


def _authorize(request: Request) -> None:
    rules: AccessRules = request.app.state.access
    rule = rules.find(request.method, request.scope["route"].path)
    if rule is None:
        raise LookupError(f"{rules.service}: no access rule for {request.method} {request.scope['route'].path}")
    caller = rule.admit(principal_of(request), request.query_params.get("project"))
    refuse_nul(request.scope)
    request.state.caller = caller
    parameters = request.scope["path_params"]
    if rule.scope in (Scope.PROJECT, Scope.SHARED):
        request.scope["path_params"] = {name: caller.key(value) for name, value in parameters.items()}
    elif rule.scope is Scope.ITSELF:
        for project in parameters.values():
            caller.check(key_of(project, ""), project)


def principal_of(request: Request) -> Principal:
    return request.scope.get("state", {}).get("principal") or ANONYMOUS


def is_still_authorized(request: Request) -> bool:
    """Whether the token of a request in progress is still valid for the same principal as when it was sent."""
    authenticate: Callable[[], Principal] | None = request.scope.get("state", {}).get("authenticate")
    try:
        return authenticate is None or authenticate() == principal_of(request)
    except MatrixError:
        return False


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


RequestCaller = Annotated[Caller, Depends(_caller)]
"""The caller, for handlers that need it."""
