"""Takes secrets out of texts before they leave the machine.

What is secret is known twice over: by value, every token, key and password that the state folder has; and by shape,
what looks like a bearer token, a private key or a password in a URL, wherever it came from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HIDDEN = "***"
SHAPES = (
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"\bcm_[A-Za-z0-9_-]{16,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    re.compile(r'(?i)(?<=password["\']: ["\'])[^"\']+'),
)
SHORTEST = 8
"""Characters: a shorter value would be found in words that are no secrets."""
KUBECONFIG_SECRETS = frozenset(("token", "client-key-data", "password", "client-certificate-data"))


class Redactor:
    """Replaces each secret by `***`, and counts how many it found."""

    def __init__(self, secrets: set[str]) -> None:
        self._values = sorted((value for value in secrets if len(value) >= SHORTEST), key=len, reverse=True)
        self.found = 0

    def clean(self, text: str) -> str:
        for value in self._values:
            self.found += text.count(value)
            text = text.replace(value, HIDDEN)
        for shape in SHAPES:
            text, count = shape.subn(HIDDEN, text)
            self.found += count
        return text


def secrets_of(folder: Path) -> set[str]:
    """Every token, key and password that a state folder has, those of its containers included."""
    return {value.strip() for value in _values(folder) if value.strip()}


def _values(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        name = file.name
        if name.endswith("-token") or name in ("password", "tokens.csv"):
            yield from file.read_text(errors="replace").split()
        elif name.startswith("kubeconfig"):
            yield from _named(yaml.safe_load(file.read_text(errors="replace")), KUBECONFIG_SECRETS)
        elif name == "database-passwords":
            yield from json.loads(file.read_text()).values()
        elif name == "tokens.json":
            yield from json.loads(file.read_text() or "{}")
        elif name.endswith((".key", ".pem")):
            text = file.read_text(errors="replace")
            yield text
            yield from (line for line in text.splitlines() if not line.startswith("-----"))


def _named(value: Any, names: frozenset[str]) -> Iterator[str]:
    """Texts under one of these names, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in names and isinstance(inner, str):
                yield inner
            yield from _named(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, names)
