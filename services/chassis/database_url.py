"""Accepted database URLs: a SQLite file, or a database on a PostgreSQL server through psycopg."""

from __future__ import annotations

import re

ACCEPTED_URLS = "sqlite:///FILE or postgresql://USER@HOST/NAME"

_FILE = re.compile(r"sqlite:///(?!:memory:)[^?]+(\?.*)?", re.DOTALL)
_SERVER = re.compile(r"postgresql(\+psycopg)?://.*", re.DOTALL)


def check_database_url(url: str) -> None:
    """Raise ValueError, saying what is accepted, for any other URL."""
    if not (_FILE.fullmatch(url) or _SERVER.fullmatch(url)):
        raise ValueError(f"{without_credentials(url)[:200]!r} is not a supported database URL; use {ACCEPTED_URLS}")


def without_credentials(url: str) -> str:
    """The URL without user and password."""
    scheme, found, rest = url.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"
