"""Bearer tokens: each belongs to a project and a role.

The file holds digests, never tokens: a JSON object from the SHA-256 of a token to its `Principal`. It is read again
when it changes, so `matrixctl token create` and `token revoke` take effect at once. Writers hold a lock file beside it,
so that of two concurrent changes neither is lost.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matrixcommon.api.authorization import ANONYMOUS, EVERY_PROJECT, ROLES, Principal
from matrixcommon.model.errors import InvalidField, MatrixError, NotFound, Unauthorized, Unavailable
from matrixcommon.model.hardware_names import RESOURCE_NAME

__all__ = [
    "ANONYMOUS",
    "EVERY_PROJECT",
    "ROLES",
    "Principal",
    "Tokens",
    "add_token",
    "create_token",
    "digest",
    "revoke_token",
]

log = logging.getLogger(__name__)


class DamagedTokens(MatrixError):
    """The file of tokens cannot be parsed."""


class Tokens:
    """The tokens of one file. Without a file every caller is an admin (a service started by itself, by hand)."""

    def __init__(self, path: Path | None, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._file_version: tuple[int, int, int] | None = None
        self._principals: dict[str, Principal] = {}

    def principal(self, authorization: str | None) -> Principal:
        """The principal of an `Authorization` header. Raises Unauthorized."""
        if self._path is None:
            return ANONYMOUS
        if not authorization:
            raise Unauthorized("no token: send 'Authorization: Bearer TOKEN' (made by `matrixctl token create`)")
        kind, _, token = authorization.partition(" ")
        token = token.strip() if kind.lower() == "bearer" else ""
        known = self._current().get(digest(token)) if token else None
        if known is None:
            raise Unauthorized("unknown token")
        if known.expires_at is not None and known.expires_at <= self._wall():
            raise Unauthorized("the token has expired")
        return known

    def _current(self) -> dict[str, Principal]:
        assert self._path is not None
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        changed = (found.st_mtime_ns, found.st_ino, found.st_size)
        if changed != self._file_version:
            try:
                self._principals = {key: Principal(**value) for key, value in read_tokens(self._path).items()}
            except DamagedTokens as damaged:
                log.error(damaged.message)
                raise Unavailable("the token file cannot be read; see the log") from damaged
            self._file_version = changed
        return self._principals


def read_tokens(path: Path) -> dict[str, Any]:
    """The content of the file; empty if there is none. Raises DamagedTokens."""
    try:
        current: dict[str, Any] = json.loads(path.read_text())
        for value in current.values():
            Principal(**value)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as wrong:
        raise DamagedTokens(
            f"{path} is damaged ({wrong}); move it away: `matrixctl up` recreates it, without the tokens you created"
        ) from wrong
    return current


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(
    path: Path, name: str, project: str, role: str, nodes: str = "", expires_at: float | None = None
) -> str:
    """Create a token and add its digest to the file. The token itself is returned once and stored nowhere."""
    token = "cm_" + secrets.token_urlsafe(24)
    add_token(path, token, Principal(name, project, role, nodes, expires_at))
    return token


def add_token(path: Path, token: str, principal: Principal) -> None:
    """Add a token to the file. Raises InvalidField."""
    if principal.role not in ROLES:
        raise InvalidField(f"unknown role {principal.role!r}; use one of {', '.join(ROLES)}", field="role")
    if principal.project != EVERY_PROJECT and not RESOURCE_NAME.fullmatch(principal.project):
        raise InvalidField(f"{principal.project!r} is not a valid project name", field="project")
    if (principal.role == "agent") != bool(principal.nodes):
        raise InvalidField("required for tokens of role agent, and allowed only for them", field="nodes")
    with _rewriting(path) as current:
        current[digest(token)] = {key: value for key, value in asdict(principal).items() if value not in ("", None)}


def revoke_token(path: Path, name_or_digest: str) -> list[str]:
    """Remove the tokens of that name, or whose digest begins with it, and return their digests. Raises NotFound."""
    with _rewriting(path) as current:
        revoked = [key for key, value in current.items() if value["name"] == name_or_digest]
        revoked = revoked or [key for key in current if len(name_or_digest) >= 8 and key.startswith(name_or_digest)]
        if not revoked:
            raise NotFound(f"no token is named {name_or_digest!r} or has a digest that begins so", field="name")
        for key in revoked:
            del current[key]
    return revoked


@contextmanager
def _rewriting(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the file's content and write it back. The file is replaced atomically, so readers never see half of it."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        current = read_tokens(path)
        yield current
        draft = path.with_suffix(".new")
        draft.touch(0o600)
        draft.write_text(json.dumps(current, indent=1))
        draft.chmod(0o600)
        if os.geteuid() == 0 and path.exists():  # changed by root: the services keep the ownership
            os.chown(draft, path.stat().st_uid, path.stat().st_gid)
        draft.replace(path)
