"""Bearer tokens: each belongs to a project and a role.

The file holds digests, never tokens: a JSON object from the SHA-256 of a token to {"name", "project", "role"}. It is
read again when it changes, so a token made by `matrixctl token create` works at once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from matrixcommon.model.errors import Forbidden, Unauthorized

ROLES = ("viewer", "agent", "editor", "admin")


@dataclass(frozen=True)
class Principal:
    """Who asks."""

    name: str
    project: str
    role: str

    def may(self, method: str, path: str) -> None:
        """Forbidden unless the role covers the request: viewers read, agents also report, editors also change."""
        if method in ("GET", "HEAD", "OPTIONS") or self.role in ("editor", "admin"):
            return
        if self.role == "agent" and path.endswith("-reports"):
            return
        raise Forbidden(f"{self.name} is {self.role} of project {self.project} and may not {method} {path}")


ANYONE = Principal("anyone", "default", "admin")


class Tokens:
    """The tokens of one file; without a file everybody is an admin (a service started alone, by hand)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._read_at: float | None = None
        self._known: dict[str, Principal] = {}

    def principal(self, authorization: str | None) -> Principal:
        """Who the `Authorization` header stands for. Raises Unauthorized."""
        if self._path is None:
            return ANYONE
        if not authorization:
            raise Unauthorized("no token: send 'Authorization: Bearer TOKEN' (`matrixctl token create` makes one)")
        kind, _, token = authorization.partition(" ")
        known = self._current().get(digest(token.strip())) if kind.lower() == "bearer" else None
        if known is None:
            raise Unauthorized("this token is not one of ours")
        return known

    def _current(self) -> dict[str, Principal]:
        assert self._path is not None
        try:
            changed_at = self._path.stat().st_mtime
        except FileNotFoundError:
            return {}
        if changed_at != self._read_at:
            current = json.loads(self._path.read_text())
            self._known = {key: Principal(**value) for key, value in current.items()}
            self._read_at = changed_at
        return self._known


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(path: Path, name: str, project: str, role: str) -> str:
    """A new token, its digest added to the file. The token itself is shown once and kept nowhere."""
    if role not in ROLES:
        raise Forbidden(f"there is no role {role!r}; use one of {', '.join(ROLES)}")
    token = "cm_" + secrets.token_urlsafe(24)
    add_token(path, token, name, project, role)
    return token


def add_token(path: Path, token: str, name: str, project: str, role: str) -> None:
    """Make `token` known. The file is replaced in one step, so a reader never sees half of it."""
    current = json.loads(path.read_text()) if path.exists() else {}
    current[digest(token)] = {"name": name, "project": project, "role": role}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(current, indent=1))
    draft.chmod(0o600)
    draft.replace(path)
