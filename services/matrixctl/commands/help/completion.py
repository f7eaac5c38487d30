"""Completion of current names: quick, and silent if anything is wrong.

A shell asks while somebody types, so an answer that takes longer than `DEADLINE_WALL_S` is none, and what goes wrong
(no stack, no token, a service that is away) offers nothing instead of a line of error in the middle of a command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

DEADLINE_WALL_S = 1.0
MOST = 200
"""More would be of no use in a shell."""


def complete_kinds(incomplete: str) -> list[str]:
    from services.matrixctl.output.resource_kinds import LISTED_KINDS

    return [noun.name for noun in LISTED_KINDS if noun.name.startswith(incomplete)]


def complete_words(incomplete: str) -> list[str]:
    """Kinds and reasons, and after a dot the fields of a kind."""
    try:
        from services.matrixctl.explain import catalogue

        name, dot, path = incomplete.partition(".")
        if not dot:
            every = [*complete_kinds(""), *catalogue.custom_kinds(), *catalogue.words()]
            return [word for word in every if word.lower().startswith(incomplete.lower())]
        kind = catalogue.lookup_kind(name)
        if kind is None:
            return []
        above, _, last = path.rpartition(".")
        inside = catalogue.lookup_field(kind, above).inside if above else (*kind.fields, *kind.settable)
        names = dict.fromkeys(each.name for each in inside if each.name.startswith(last))
        return [f"{name}.{above}.{each}" if above else f"{name}.{each}" for each in names]
    except Exception:
        return []


def complete_resources(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the noun before it, as in `get nodes sn0-c`."""
    return names_of(str(context.params.get("noun") or ""))(context, incomplete)


def names_of(noun: str) -> Callable[[typer.Context, str], list[str]]:
    """A completion of the names of one kind."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            state = Path(context.params.get("state") or os.environ.get("CLOUDMATRIX_STATE") or "~/.cloudmatrix")
            return sorted(set(_names(state, noun, incomplete)))[:MOST]
        except Exception:  # whatever is amiss, a shell in the middle of a command is not the place to say it
            return []

    return complete


def _names(state: Path, noun: str, incomplete: str) -> Iterator[str]:
    from services.matrixctl.clients.api_client import ApiClient
    from services.matrixctl.clients.collections import serving_services
    from services.matrixctl.output.resource_kinds import find_kind
    from services.matrixctl.output.screen import full_name
    from services.matrixctl.supervisor.state_folder import StateFolder

    kind = find_kind(noun)
    client = ApiClient.of(StateFolder(state))
    client.deadline_wall_s = DEADLINE_WALL_S
    for service in serving_services(client, kind):
        page: dict[str, Any] = client.call(service, "GET", kind.path, params={"pageSize": 1000})
        named = (full_name(view) for view in page["items"] if view.get("name"))
        yield from (name for name in named if name.startswith(incomplete))


def scenarios(incomplete: str) -> list[str]:
    """Built-in scenarios."""
    try:
        from matrixcompute.scenarios.library import library

        return [name for name in library() if name.startswith(incomplete)]
    except Exception:
        return []


def fault_kinds(incomplete: str) -> list[str]:
    """Kinds of faults."""
    from matrixresource.agent.fault_catalogue import FAULT_KINDS

    return [kind for kind in FAULT_KINDS if kind.startswith(incomplete)]
