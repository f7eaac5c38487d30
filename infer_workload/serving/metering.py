"""Tokens per tenant and key.

A finished request is charged to the project and the name of the token it came with. The built-in load, which has no
client, is charged to the tenant `load`, gathered over some seconds. Charges wait here until they are in the database.
"""

from __future__ import annotations

from collections import Counter, defaultdict

LOAD_TENANT = "load/built-in"

Usage = dict[tuple[str, str], Counter[str]]
"""Requests and tokens by tenant (project and key, parted by a slash) and deployment, named as in the table of usage."""


class Metering:
    """Gathers usage until `take` is called; `restore` returns what could not be written."""

    def __init__(self) -> None:
        self._open: Usage = defaultdict(Counter)

    def add(self, deployment: str, tenant: str, prompt: int, cached: int, completion: int) -> None:
        self._open[tenant, deployment].update(
            requests=1, prompt_tokens=prompt, cached_tokens=min(cached, prompt), completion_tokens=completion
        )

    def take(self) -> Usage:
        taken, self._open = self._open, defaultdict(Counter)
        return taken

    def restore(self, used: Usage) -> None:
        for account, counts in used.items():
            self._open[account].update(counts)
