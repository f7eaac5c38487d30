"""Who is asking: bearer tokens. What they may do is for authorizer.py to say.

Tokens are opaque words known to a token file (name, groups) plus signed ones issued to service accounts.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SEEN_MAX = 64
ANONYMOUS_GROUPS = ("system:unauthenticated",)


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        return found | ({"uid": self.uid} if self.uid else {}) | ({"extra": self.extra} if self.extra else {})


ANONYMOUS = User("system:anonymous", ANONYMOUS_GROUPS)


class Access:
    """`authenticate` turns an Authorization header into a User; `key` signs the tokens of service accounts."""

    def __init__(self, tokens: dict[str, User], key: bytes, now: Callable[[], float]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._seen: dict[str, User] = {}  # users of the token file by the header they sent
        self._key = key
        self._now = now

    def authenticate(self, header: str) -> User | None:
        """The user of a header; anonymous without one, None when the token is unknown."""
        if not header:
            return ANONYMOUS
        known = self._seen.get(header)
        if known is not None:
            return known
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        status = self._users.get(_digest(token.strip()))
        if status is None:
            return self._service_account(token.strip())
        if len(self._seen) < SEEN_MAX:
            self._seen[header] = status
        return status

    def user_of(self, token: str) -> User | None:
        return self._users.get(_digest(token)) or self._service_account(token)

    # ---- service account tokens: payload.signature, both base64

    def issue(self, namespace: str, name: str, uid: str, lifetime_s: int) -> tuple[str, float]:
        """(token, moment it ends) for a service account."""
        ends = self._now() + lifetime_s
        payload = json.dumps({"ns": namespace, "sa": name, "uid": uid, "exp": ends}).encode()
        return f"{_text(payload)}.{_text(self._sign(payload))}", ends

    def _sign(self, payload: bytes) -> bytes:
        return hmac.new(self._key, payload, hashlib.sha256).digest()

    def _service_account(self, token: str) -> User | None:
        body, dot, signature = token.partition(".")
        try:
            payload = _bytes(body)
            if not dot or not hmac.compare_digest(self._sign(payload), _bytes(signature)):
                return None
            found = json.loads(payload)
        except ValueError:
            return None
        if found["exp"] < self._now():
            return None
        name = f"system:serviceaccount:{found['ns']}:{found['sa']}"
        return User(name, service_account_groups(found["ns"]), found["uid"])


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# ---- the token file


def load_tokens(path: Path, wanted: dict[str, User], given: dict[str, str]) -> tuple[dict[str, User], bytes]:
    """Read the token file, adding a fresh token for each wanted user that has none; returns (tokens, signing key).

    `given` fixes the token of a user by name, as an environment variable does. The file holds secrets: mode 0600.
    """
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entries = document.setdefault("tokens", {})
    for name, user in wanted.items():
        entry = entries.setdefault(name, {"token": secrets.token_urlsafe(32)})
        entry["token"] = given.get(name) or entry["token"]
        entry |= {"user": user.name, "groups": list(user.groups)}
    key = document.setdefault("signingKey", secrets.token_urlsafe(32))
    text = json.dumps(document, indent=2) + "\n"
    if not path.exists() or path.read_text() != text:
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(path)
    tokens = {entry["token"]: User(entry["user"], tuple(entry["groups"])) for entry in entries.values()}
    return tokens, key.encode()
