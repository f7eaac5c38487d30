"""One HTTP request, taken apart once: path, query, headers, body; and the path as a Kubernetes one."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.access import ANONYMOUS, User
from matrixcontainer.kubeapi.errors import ApiError
from matrixcontainer.kubeapi.rbac import Wish

BODY_BYTES_MAX = 3 * 2**20

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    receive: Receive
    user: User = ANONYMOUS
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str) -> int:
        text = self.query.get(name, "")
        if not text:
            return 0
        try:
            return int(text)
        except ValueError:
            raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def request_of(scope: dict[str, Any], receive: Receive) -> Request:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        between = "\n" if key.startswith("impersonate-") else ","
        headers[key] = f"{headers[key]}{between}{text}" if key in headers else text
    query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
    raw = scope.get("raw_path")
    path = raw.decode("latin-1").partition("?")[0] if raw else scope["path"]
    return Request(scope["method"], path, query, headers, receive)


async def read_body(request: Request) -> None:
    """Read the whole body; 413 as soon as it is over the limit."""
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > BODY_BYTES_MAX:
        raise errors.too_large(BODY_BYTES_MAX)
    parts = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ApiError(400, "BadRequest", "the client went away")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES_MAX:
            raise errors.too_large(BODY_BYTES_MAX)
        if not message.get("more_body"):
            break
    request.body = b"".join(parts)


@dataclass(frozen=True)
class Target:
    """What a resource path points at."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    rest: str = ""


RESOURCE_PATH = re.compile(r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))/(?P<rest>.+)$")


@lru_cache(maxsize=4096)
def parse_target(path: str) -> Target | None:
    """The target of a path below a group-version, or None when it is not one."""
    match = RESOURCE_PATH.match(path)
    if match is None:
        return None
    group, version = match["group"] or "", match["core"] or match["version"]
    parts = [unquote(part) for part in match["rest"].rstrip("/").split("/")]
    watch = len(parts) > 1 and parts[0] == "watch"
    if watch:
        parts = parts[1:]
    namespace = ""
    if (
        parts[0] == "namespaces"
        and len(parts) > 2
        and not (group == "" and len(parts) == 3 and parts[2] in ("status", "finalize"))
    ):
        namespace, parts = parts[1], parts[2:]
    plural, name, sub, *rest = (*parts, "", "", "")
    return Target(group, version, plural, namespace, name, sub, watch, "/".join(part for part in rest if part))


VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
NAMED = re.compile(r"(?:^|,)\s*metadata\.name==?([^,]+)")


def wish_of(request: Request, target: Target | None) -> Wish:
    """What the request wants to do, as it is authorised: lists and watches of one named object carry its name."""
    verb = VERBS.get(request.method, request.method.lower())
    if target is None:
        return Wish(verb, path=request.path)
    name = target.name
    if target.watch:
        verb = "watch"
    elif not name:
        if verb == "get":
            verb = "watch" if request.flag("watch") else "list"
        elif verb == "delete":
            verb = "deletecollection"
    if verb in ("list", "watch", "deletecollection") and not name:
        found = NAMED.search(request.query.get("fieldSelector", ""))
        name = found[1] if found else ""
    namespace = target.namespace
    if target.plural == "namespaces" and not target.group:
        namespace = target.name
    return Wish(verb, target.group, target.plural, target.subresource, namespace, name)
