"""Removes secrets from texts before they leave the machine.

What is secret is known twice over: by value, every token, key and password that the state folder has; and by shape,
what looks like a bearer token, a private key or a password in a URL, wherever it came from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matrixcommon.model.yaml_text import parse_yaml

REPLACEMENT = "***"
SECRET_PATTERNS = (
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"\bcm_[A-Za-z0-9_-]{16,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    re.compile(r'(?i)(?<=password["\']: ["\'])[^"\']+'),
)
SECRET_CHARS_MIN = 8
"""Minimum length in characters: a shorter value would also match ordinary words."""
SECRET_LIKE_WORDS = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
"""Matches possible secrets in a damaged file."""
SECRET_ENDINGS = ("-token", ".key", ".pem")
DIGEST_CHARS = 64
TOKEN_FILE_SECRETS = frozenset(("token", "signingKey"))
KUBECONFIG_SECRETS = frozenset(("token", "client-key-data", "password", "client-certificate-data"))


class Redactor:
    """Replaces each secret by `***` and counts them."""

    def __init__(self, secrets: set[str]) -> None:
        self._values = sorted((value for value in secrets if len(value) >= SECRET_CHARS_MIN), key=len, reverse=True)
        self.found = 0

    def redact(self, text: str) -> str:
        for value in self._values:
            self.found += text.count(value)
            text = text.replace(value, REPLACEMENT)
        for shape in SECRET_PATTERNS:
            text, count = shape.subn(REPLACEMENT, text)
            self.found += count
        return text


def find_secrets(folder: Path) -> set[str]:
    """Every token, key and password in a state folder, including those of its containers. Of a damaged file of secrets,
    every word that might be one."""
    return {value.strip() for file in folder.rglob("*") for value in _values(file) if value.strip()}


def _values(file: Path) -> list[str]:
    try:
        text = file.read_text(errors="replace") if _holds_secrets(file) else ""
    except FileNotFoundError:
        return []  # a draft that was put in its place, or a process that ended
    try:
        return list(_values_in(file.name, text))
    except (ValueError, TypeError, AttributeError):
        return SECRET_LIKE_WORDS.findall(text)


def _holds_secrets(file: Path) -> bool:
    name = file.name
    known = ("password", "tokens.csv", "database-passwords", "tokens.json")
    return file.is_file() and (name in known or name.startswith("kubeconfig") or name.endswith(SECRET_ENDINGS))


def _values_in(name: str, text: str) -> Iterator[str]:
    if name.startswith("kubeconfig"):
        yield from _values_under(parse_yaml(text), KUBECONFIG_SECRETS)
    elif name == "database-passwords":
        yield from map(str, json.loads(text).values())
    elif name == "tokens.json":
        # The services' holds digests of tokens as its keys, the Kubernetes API's tokens and a key to sign others.
        document = json.loads(text or "{}")
        yield from (key for key in document if len(key) == DIGEST_CHARS)
        yield from _values_under(document, TOKEN_FILE_SECRETS)
    elif name.endswith((".key", ".pem")):
        yield text
        yield from (line for line in text.splitlines() if not line.startswith("-----"))
    else:
        yield from text.split()


def _values_under(value: Any, names: frozenset[str]) -> Iterator[str]:
    """Texts under one of these keys, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in names and isinstance(inner, str):
                yield inner
            yield from _values_under(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _values_under(inner, names)
