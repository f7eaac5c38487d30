"""Who may do what, decided in one place.

A resource kind is declared once: its collection, whose it is (`Scope`), and which roles may do which of its verbs. A
service's `AccessRules` are its kinds; each of its routes has to be among them, or the service does not start. Before a
route's handler runs, the guard has found the caller's role allowed, and has put the resource's key (see `resource_key`)
in place of the name in the path: a caller can name nothing but what belongs to projects it may act for, so what is not
yours is not there (404). Lists are narrowed to the same projects (`listing`).
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

if TYPE_CHECKING:  # who only asks who may do what has no database
    from matrixcommon.persistence.resource_row import ResourceRow

Body = TypeVar("Body", bound=ApiModel)
Answer = TypeVar("Answer")

ROLES = ("viewer", "editor", "admin", "agent", "user")
EVERY_PROJECT = "*"
"""The project of a token that acts for all of them, with the rights of its role."""

VIEWERS = frozenset({"viewer", "editor", "admin"})
EDITORS = frozenset({"editor", "admin"})
ADMINS = frozenset({"admin"})
AGENTS = frozenset({"agent", "admin"})
USERS = frozenset({"user", "editor", "admin"})

READ = {"LIST": VIEWERS, "GET": VIEWERS}
ENSURED = {**READ, "PUT": EDITORS, "DELETE": EDITORS}
MANAGED = {**READ, "PUT": ADMINS, "DELETE": ADMINS}
"""Verbs that most kinds have: looked at alone; ensured by whose they are; managed by admins."""

TAKEN = "(another project's)"
"""Stands where a view would name what belongs to a project that the caller may not see."""


class Scope(Enum):
    """Whose a kind's resources are."""

    PROJECT = "project"  # each belongs to a project, and is there for nobody else
    SHARED = "two projects"  # belongs to a project and concerns another; its handlers decide who sees it
    PHYSICAL = "physical"  # belongs to nobody; who holds it shows only to the holder's project
    ITSELF = "is a project's"  # named for the project that it is about
    MIXED = "physical or project"  # some belong to a project, the others to nobody
    NODE = "node"  # an agent's, of the nodes that its token speaks for
    SERVICE = "service"  # of the service as a whole


@dataclass(frozen=True)
class Principal:
    """Whom a token stands for. `nodes`: the nodes an agent speaks for, as a pattern; `expires_at` by the wall."""

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

    def reports_for(self, node: str) -> bool:
        """Whether it may speak for this node."""
        return self.role == "admin" or (self.role == "agent" and bool(self.nodes) and fnmatchcase(node, self.nodes))


ANYONE = Principal("anyone", DEFAULT_PROJECT, "admin")
"""Who asks where there are no tokens."""


@dataclass(frozen=True)
class Rule:
    """One route's: which roles may, whose the resource is, whether anything changes. `view`: what its lists show."""

    method: str
    path: str
    kind: str
    roles: frozenset[str]
    scope: Scope
    mutates: bool
    view: type[ApiModel] | None = None
    holders: tuple[str, ...] = ()

    def admit(self, principal: Principal, project: str | None = None) -> Caller:
        """The caller, where its role may do this. `project` was named in the request. Raises Forbidden, NotFound."""
        if principal.role not in self.roles:
            raise Forbidden(
                f"{principal.name} is {principal.role} of project {principal.project} and may not "
                f"{self.method} {self.path.replace('{}', 'NAME')}"
            )
        if project is not None:
            if not RESOURCE_NAME.fullmatch(project):
                raise InvalidField(f"{project[:80]!r} is no project's name", field="project")
            decided_later = self.scope is Scope.SHARED and "{}" in self.path
            if not decided_later and not principal.sees(project):
                raise NotFound(f"there is no project {project!r} here", field="project")
        return Caller(principal, self, project)


@dataclass(frozen=True)
class Caller:
    """Who asks for what: the principal, the route's rule, and the project the request names, if it names one."""

    principal: Principal
    rule: Rule
    named: str | None = None

    @property
    def project(self) -> str:
        """The project that a name in the request is of."""
        return self.named or self.principal.own_project

    def key(self, name: str) -> str:
        return key_of(self.project, name)

    def resolve(self, text: str) -> str:
        """The key that a reference in the request means. Raises NotFound for one of a project not the caller's."""
        key = resolve(text, self.project)
        self.check(key, text)
        return key

    def check(self, key: str, named: str = "") -> None:
        """Raises NotFound where this is of a project not the caller's. `named`: what it was called."""
        if not self.sees(project_of(key)):
            raise NotFound(f"there is no {(named or key)[:80]!r}")

    def sees(self, project: str | None) -> bool:
        """Whether lists show what belongs to this project."""
        if self.named is not None and project != self.named:
            return False
        return self.principal.sees(project)

    @property
    def sees_all(self) -> bool:
        agent = self.principal.role == "agent" and self.principal.nodes != "*"
        return self.named is None and self.principal.everywhere and not agent

    def claim(self, key: str, body: Body) -> tuple[str, Body]:
        """The key and the body of what shall be, in one project. Who acts for all may name it in the body instead."""
        project = project_of(key)
        named = getattr(body, "project", project)
        if "project" in body.model_fields_set and named != project:
            if self.named is not None:
                raise InvalidField(f"?project={self.named} and project {named} are two", field="project")
            if not RESOURCE_NAME.fullmatch(named):
                raise InvalidField(f"{named[:80]!r} is no project's name", field="project")
            if not self.principal.sees(named):
                raise NotFound(f"there is no project {named!r} here", field="project")
            key = key_of(named, name_of(key))
            project = named
        return key, body.in_project(project)

    def answers_each(
        self,
        reports: Sequence[Any],
        take: Callable[[list[Any]], Sequence[Answer]],
        refuse: Callable[[str, str, str], Answer],
    ) -> list[Answer]:
        """What is answered to a batch of agents' reports, each by itself: one for a node that the token does not speak
        for, or that cannot be read, is refused (node, reason, message), the others are taken."""
        why = [self._refusal(each) for each in reports]
        taken = iter(take([each for each, reason in zip(reports, why, strict=True) if reason is None]))
        return [
            next(taken) if reason is None else refuse(str(each.node), *reason)
            for each, reason in zip(reports, why, strict=True)
        ]

    def _refusal(self, report: Any) -> tuple[str, str] | None:
        if not self.principal.reports_for(report.node):
            return "Forbidden", f"this token does not speak for {report.node}"
        return ("InvalidField", report.message) if isinstance(report, UnreadableReport) else None

    def hide(self, document: dict[str, Any]) -> dict[str, Any]:
        """A view without the names of what belongs to others, as its kind's `holders` say where they stand."""
        if self.principal.everywhere or not self.rule.holders:
            return document
        return hidden(document, self.rule.holders, self.principal.sees)


def hidden(document: dict[str, Any], fields: Iterable[str], sees: Callable[[str], bool]) -> dict[str, Any]:
    """A document where keys in `fields`, at any depth, show only where `sees` their project; also in its sentences, and
    where such a field is a mapping by them."""
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
                TAKEN if by_key and name in foreign else name: shown(child, name in fields)
                for name, child in value.items()
            }
        if isinstance(value, list):
            return [shown(child) for child in value]
        return names.sub(TAKEN, value) if isinstance(value, str) else value

    return {name: shown(value, name in fields) for name, value in document.items()}


@dataclass(frozen=True)
class ResourceKind:
    """A collection under /v1, and its verbs.

    A verb is a method and what follows the resource's path: `LIST` and `CREATE` are of the collection, `PUT`,
    `GET /flows`, `POST :renew` of one resource. `queries` are verbs that change nothing though they are posted.
    `view` declares the fields that lists are filtered and ordered by, `request` what is asked of one in the caller's
    project, `row` as what each is kept, if it is, and `named` how names are spelt; `holders` the fields of a physical
    thing's view that say who holds it.
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
        """One of them, in words: `a switch`, `a recovery policy`."""
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
    """The kinds that a module declares, by its `globals()`."""
    return tuple(each for each in module.values() if isinstance(each, ResourceKind))


PARAMETER = re.compile(r"\{[^}]*\}")


@dataclass
class AccessRules:
    """A service's kinds, and what is outside of them."""

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
        """Raises LookupError for a route that is not declared, a declaration without a route, and a route that changes
        something and cannot be only tried."""
        seen = set()
        for route in (each for router in routers for each in router.routes):
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                rule = self.find(method, route.path)
                if rule is None:
                    raise LookupError(f"{self.service}: nobody has decided who may {method} {route.path}")
                if not any(isinstance(each.dependency, Guard) for each in route.dependencies):
                    raise LookupError(f"{self.service}: {method} {route.path} is not GUARDED")
                seen.add((rule.method, rule.path))
                if rule.mutates and "validate_only" not in signature(route.endpoint).parameters:
                    raise LookupError(f"{self.service}: {method} {route.path} does not take validateOnly")
        if missing := set(self.by_route) - seen:
            raise LookupError(f"{self.service}: there is no route {sorted(missing)}")


Refuse = Callable[[Request], Awaitable[None]]


class Guard:
    """What every route depends on: the rules of the application (`create_app`) decide before its handler; then who may
    ask is refused what cannot be asked. One dependency for all of it: FastAPI looks at each of every route."""

    def __init__(self, *refusals: Refuse) -> None:
        self._refusals = refusals

    async def __call__(self, request: Request) -> None:
        _authorize(request)
        for refuse in self._refusals:
            await refuse(request)


GUARDED = (Depends(Guard()),)
"""The dependencies of a router that has no refusals of its own."""


def _authorize(request: Request) -> None:
    rules: AccessRules = request.app.state.access
    rule = rules.find(request.method, request.scope["route"].path)
    if rule is None:
        raise LookupError(f"{rules.service}: nobody has decided who may {request.method} {request.scope['route'].path}")
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
    return request.scope.get("state", {}).get("principal") or ANYONE


def still_admitted(request: Request) -> bool:
    """Whether the token of a request that is being answered still stands for whom it stood when it was asked."""
    asks: Callable[[], Principal] | None = request.scope.get("state", {}).get("asks")
    try:
        return asks is None or asks() == principal_of(request)
    except MatrixError:
        return False


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
"""Who asks, for handlers that have to know."""
