"""Authentication by bearer token. Authorization is in authorizer.py.

Tokens are either opaque ones from a token file (name, groups) or signed ones issued to service accounts. A signed token
is valid for its audiences until it expires, and only while its service account exists.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CACHED_USERS_MAX = 64
API_AUDIENCE = "https://kubernetes.default.svc"
"""Default audience of tokens: this API."""
TOKEN_LIFETIME_S_MAX = 24 * 3600
"""Longer requested lifetimes are capped to this; clients renew their tokens, as client-go does every few minutes."""
ANONYMOUS_GROUPS = ("system:unauthenticated",)


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        return found | ({"uid": self.uid} if self.uid else {}) | ({"extra": self.extra} if self.extra else {})


ANONYMOUS = User("system:anonymous", ANONYMOUS_GROUPS)


class TokenAuthenticator:
    """`authenticate` turns an Authorization header into a User; `key` signs the tokens of service accounts.

    `account_uid` returns the uid of the service account with that namespace and name, "" if there is none. `Core` sets
    it; until then all service account tokens are refused.
    """

    account_uid: Callable[[str, str], str] = staticmethod(lambda namespace, name: "")

    def __init__(self, tokens: dict[str, User], key: bytes, now: Callable[[], float]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._cached_users: dict[str, User] = {}  # users of the token file by the header they sent
        self._key = key
        self._now = now

    def authenticate(self, header: str) -> User | None:
        """The user for an Authorization header: anonymous without one, None if the token is invalid."""
        if not header:
            return ANONYMOUS
        known = self._cached_users.get(header)
        if known is not None:
            return known
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        status = self._users.get(_digest(token.strip()))
        if status is None:
            return self._service_account(token.strip(), (API_AUDIENCE,))[0]
        if len(self._cached_users) < CACHED_USERS_MAX:
            self._cached_users[header] = status
        return status

    def review_token(self, token: str, audiences: Sequence[str]) -> tuple[User | None, list[str]]:
        """The user of a token, and for which of these audiences (default: this API) it is valid."""
        requested = audiences or (API_AUDIENCE,)
        known = self._users.get(_digest(token))
        if known is not None:  # tokens of the token file are for this API only
            shared = [each for each in requested if each == API_AUDIENCE]
            return (known, shared) if shared else (None, [])
        return self._service_account(token, requested)

    # ---- service account tokens: payload.signature, both base64

    def issue_token(
        self, namespace: str, name: str, uid: str, lifetime_s: int, audiences: Sequence[str] = ()
    ) -> tuple[str, float]:
        """Issue a token to a service account; return it and when it expires, at most TOKEN_LIFETIME_S_MAX from now."""
        expires_at = self._now() + min(lifetime_s, TOKEN_LIFETIME_S_MAX)
        claims = {"ns": namespace, "sa": name, "uid": uid, "exp": expires_at, "aud": list(audiences) or [API_AUDIENCE]}
        payload = json.dumps(claims).encode()
        return f"{_text(payload)}.{_text(self._sign(payload))}", expires_at

    def _sign(self, payload: bytes) -> bytes:
        return hmac.new(self._key, payload, hashlib.sha256).digest()

    def _service_account(self, token: str, audiences: Sequence[str]) -> tuple[User | None, list[str]]:
        """The existing service account that a signed token was issued to, and which of `audiences` it is valid for."""
        body, dot, signature = token.partition(".")
        try:
            payload = _bytes(body)
            if not dot or not hmac.compare_digest(self._sign(payload), _bytes(signature)):
                return None, []
            claims = json.loads(payload)
        except ValueError:
            return None, []
        shared = [each for each in audiences if each in claims.get("aud", (API_AUDIENCE,))]
        if not shared or claims["exp"] < self._now() or self.account_uid(claims["ns"], claims["sa"]) != claims["uid"]:
            return None, []
        name = f"system:serviceaccount:{claims['ns']}:{claims['sa']}"
        return User(name, service_account_groups(claims["ns"]), claims["uid"]), shared


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# ---- the token file


def load_tokens(path: Path, users: dict[str, User], overrides: dict[str, str]) -> tuple[dict[str, User], bytes]:
    """Read the token file and add a new token for each wanted user without one; return (tokens, signing key).

    `overrides` sets users' tokens by name, for example from environment variables. The file holds secrets: mode 0600.
    """
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entries = document.setdefault("tokens", {})
    for name, user in users.items():
        entry = entries.setdefault(name, {"token": secrets.token_urlsafe(32)})
        entry["token"] = overrides.get(name) or entry["token"]
        entry |= {"user": user.name, "groups": list(user.groups)}
    key = document.setdefault("signingKey", secrets.token_urlsafe(32))
    text = json.dumps(document, indent=2) + "\n"
    if not path.exists() or path.read_text() != text:
        new_file = path.with_suffix(".new")
        new_file.touch(mode=0o600)
        new_file.write_text(text)
        new_file.replace(path)
    tokens = {entry["token"]: User(entry["user"], tuple(entry["groups"])) for entry in entries.values()}
    return tokens, key.encode()
