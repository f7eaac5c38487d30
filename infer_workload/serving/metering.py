"""Tokens per tenant and key.

A finished request is charged to the project and the name of the token it came with. The built-in load, which has no
client, is charged to the tenant `load`, gathered over some seconds. Charges wait here until they are in the database.
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_workload.engine.request import InferenceRequest

LOAD_TENANT = "load/built-in"


@dataclass
class Usage:
    """What one key used on one deployment since the last charge."""

    project: str
    key: str
    deployment: str
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Metering:
    """Gathers usage until `take` is called; `give_back` returns what could not be written."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Usage] = {}

    def count(self, deployment: str, request: InferenceRequest) -> None:
        self.add(
            deployment, request.tenant or LOAD_TENANT, request.input_tokens, request.cached_first, request.generated
        )

    def add(self, deployment: str, tenant: str, prompt: int, cached: int, completion: int) -> None:
        """`tenant` is project and key, parted by a slash."""
        entry = self._open.get((tenant, deployment))
        if entry is None:
            project, _, key = tenant.partition("/")
            entry = self._open[tenant, deployment] = Usage(project, key, deployment)
        entry.requests += 1
        entry.prompt_tokens += prompt
        entry.cached_tokens += min(cached, prompt)
        entry.completion_tokens += completion

    def take(self) -> list[Usage]:
        taken, self._open = list(self._open.values()), {}
        return taken

    def restore(self, used: list[Usage]) -> None:
        for entry in used:
            current = self._open.setdefault(
                (f"{entry.project}/{entry.key}", entry.deployment), Usage(entry.project, entry.key, entry.deployment)
            )
            current.requests += entry.requests
            current.prompt_tokens += entry.prompt_tokens
            current.cached_tokens += entry.cached_tokens
            current.completion_tokens += entry.completion_tokens
