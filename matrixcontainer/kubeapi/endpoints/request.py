"""One HTTP request, taken apart once: path, query, headers, body; and the path as a Kubernetes one."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from matrixcontainer.kubeapi.auth.authentication import ANONYMOUS, User
from matrixcontainer.kubeapi.auth.authorizer import Attributes
from matrixcontainer.kubeapi.meta import errors

BODY_BYTES_MAX = 3 * 2**20


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    too_large: bool = False  # there was more of a body than is read
    user: User = ANONYMOUS
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


def query_of(text: bytes) -> dict[str, str]:
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


@lru_cache(maxsize=1024)
def _header_name(name: bytes) -> str:
    return name.decode("latin-1").lower()


def add_header(headers: dict[str, str], name: bytes, value: bytes) -> None:
    """Repeated headers become one; of those that impersonate, values may hold commas."""
    key, text = _header_name(name), value.decode("latin-1")
    if key in headers:
        text = f"{headers[key]}{chr(10) if key.startswith('impersonate-') else ','}{text}"
    headers[key] = text


def stated_too_large(headers: dict[str, str]) -> bool:
    stated = headers.get("content-length", "0")
    return stated.isdigit() and int(stated) > BODY_BYTES_MAX


class Target(NamedTuple):
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


def parse_target(path: str) -> Target | None:
    """The target of a path below a group-version, or None when it is not one."""
    collection, _, name = path.rpartition("/")
    above = _parsed(collection)
    plain = name and "%" not in name and not collection.endswith("/")
    if not plain or above is None or above.name or above.watch or above.plural in ("watch", "namespaces"):
        return _parsed(path)
    return Target(above.group, above.version, above.plural, above.namespace, name)


@lru_cache(maxsize=4096)
def _parsed(path: str) -> Target | None:
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


def attributes_of(request: Request, target: Target | None) -> Attributes:
    """What the request wants to do, as it is authorised: lists and watches of one named object carry its name."""
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
