"""A parsed HTTP request, and the resource that its path addresses."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from matrixcontainer.kubeapi.auth.authentication import ANONYMOUS, User
from matrixcontainer.kubeapi.auth.authorizer import Attributes
from matrixcontainer.kubeapi.meta import errors

BODY_BYTES_MAX = 3 * 2**20
WHOLE_NUMBER = re.compile("[+-]?[0-9]+")
INT64, INT64_DIGITS_MAX = 2**63, 20


async def no_body() -> bytes:
    return b""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    read: Callable[[], Awaitable[bytes]] = no_body
    body: bytes = b""  # set once it has been read
    user: User = ANONYMOUS
    warnings: list[str] = field(default_factory=list)
    target: "Target | None" = field(init=False)
    """The resource that the path addresses; None for non-resource paths."""
    attributes: Attributes = field(init=False)

    def __post_init__(self) -> None:
        self.target = parse_target(self.path)
        self.attributes = _attributes_of(self, self.target)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str) -> int:
        """An int64 query parameter; 0 if absent. Raises 400 if it is invalid."""
        text = self.query.get(name, "")
        if not text:
            return 0
        if not WHOLE_NUMBER.fullmatch(text):
            raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        if len(text) > INT64_DIGITS_MAX or not -INT64 <= int(text) < INT64:
            raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return int(text)


def parse_query(text: bytes) -> dict[str, str]:
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


def parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name. Repeated ones are joined: Impersonate-* by newlines, as their values may contain
    commas, others by commas."""
    pairs = list(raw)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
    if len(headers) == len(pairs):
        return headers
    headers.clear()
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in headers:
            text = f"{headers[key]}{chr(10) if key.startswith('impersonate-') else ','}{text}"
        headers[key] = text
    return headers


class Target(NamedTuple):
    """What a resource path addresses."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    rest: str = ""


RESOURCE_PATH = re.compile(r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))/(?P<rest>.+)$")


def parse_target(path: str) -> Target | None:
    """Parse a path below a group-version; None for other paths."""
    match = RESOURCE_PATH.match(path)
    if match is None:
        return None
    group, version = match["group"] or "", match["core"] or match["version"]
    parts: list[str] = match["rest"].rstrip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
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


def _attributes_of(request: Request, target: Target | None) -> Attributes:
    """The request's authorization attributes. Lists and watches of a single named object carry its name."""
    verb = VERBS.get(request.method, request.method.lower())
    if target is None:
        return Attributes(verb, path=request.path)
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
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)
