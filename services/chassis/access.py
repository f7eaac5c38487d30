"""Bearer tokens: each belongs to a project and a role.

The file holds digests, never tokens: a JSON object from the SHA-256 of a token to its `Principal`. It is read again
when it changes, so what `matrixctl token create` and `token revoke` do works at once. Who changes it holds a lock on
the file beside it, so that of two at once neither is lost.
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

from matrixcommon.api.authorization import ANYONE, EVERY_PROJECT, ROLES, Principal
from matrixcommon.model.errors import InvalidField, MatrixError, NotFound, Unauthorized, Unavailable
from matrixcommon.model.hardware_names import RESOURCE_NAME

__all__ = [
    "ANYONE",
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
    """The file of tokens makes no sense."""


class Tokens:
    """The tokens of one file; without a file everybody is an admin (a service started alone, by hand)."""

    def __init__(self, path: Path | None, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._read_at: tuple[int, int, int] | None = None
        self._known: dict[str, Principal] = {}

    def principal(self, authorization: str | None) -> Principal:
        """Who the `Authorization` header stands for. Raises Unauthorized."""
        if self._path is None:
            return ANYONE
        if not authorization:
            raise Unauthorized("no token: send 'Authorization: Bearer TOKEN' (`matrixctl token create` makes one)")
        kind, _, token = authorization.partition(" ")
        token = token.strip() if kind.lower() == "bearer" else ""
        known = self._current().get(digest(token)) if token else None
        if known is None:
            raise Unauthorized("this token is not one of ours")
        if known.expires_at is not None and known.expires_at <= self._wall():
            raise Unauthorized("this token has expired")
        return known

    def _current(self) -> dict[str, Principal]:
        assert self._path is not None
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        changed = (found.st_mtime_ns, found.st_ino, found.st_size)
        if changed != self._read_at:
            try:
                self._known = {key: Principal(**value) for key, value in read_tokens(self._path).items()}
            except DamagedTokens as damaged:
                log.error(damaged.message)
                raise Unavailable("tokens cannot be read; the log says why") from damaged
            self._read_at = changed
        return self._known


def read_tokens(path: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none. Raises DamagedTokens."""
    try:
        current: dict[str, Any] = json.loads(path.read_text())
        for value in current.values():
            Principal(**value)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as wrong:
        raise DamagedTokens(
            f"{path} is damaged ({wrong}); move it away: `matrixctl up` makes it anew, without the tokens you created"
        ) from wrong
    return current


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(
    path: Path, name: str, project: str, role: str, nodes: str = "", expires_at: float | None = None
) -> str:
    """A new token, its digest added to the file. The token itself is shown once and kept nowhere."""
    token = "cm_" + secrets.token_urlsafe(24)
    add_token(path, token, Principal(name, project, role, nodes, expires_at))
    return token


def add_token(path: Path, token: str, principal: Principal) -> None:
    """Make `token` known. Raises InvalidField."""
    if principal.role not in ROLES:
        raise InvalidField(f"there is no role {principal.role!r}; use one of {', '.join(ROLES)}", field="role")
    if principal.project != EVERY_PROJECT and not RESOURCE_NAME.fullmatch(principal.project):
        raise InvalidField(f"{principal.project!r} is no project's name", field="project")
    if (principal.role == "agent") != bool(principal.nodes):
        raise InvalidField("an agent's token names the nodes it speaks for, and no other does", field="nodes")
    with _changing(path) as current:
        current[digest(token)] = {key: value for key, value in asdict(principal).items() if value not in ("", None)}


def revoke_token(path: Path, which: str) -> list[str]:
    """Forget the tokens of that name, or whose digest begins so; their digests. Raises NotFound."""
    with _changing(path) as current:
        gone = [key for key, value in current.items() if value["name"] == which]
        gone = gone or [key for key in current if len(which) >= 8 and key.startswith(which)]
        if not gone:
            raise NotFound(f"there is no token of {which!r}", field="name")
        for key in gone:
            del current[key]
    return gone


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """The file's content, written back changed. It is replaced in one step, so a reader never sees half of it."""
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
        if os.geteuid() == 0 and path.exists():  # changed by root, it stays the services'
            os.chown(draft, path.stat().st_uid, path.stat().st_gid)
        draft.replace(path)
