"""Who may speak for whom: a token speaks for its project; admins, and the provider's own processes (project `default`),
for all."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from matrixcommon.model.errors import Forbidden

PROVIDER = "default"


async def _asker(request: Request) -> Any:
    return getattr(request.state, "principal", None)


Asker = Annotated[Any, Depends(_asker)]
"""Whom the request's token stands for; nobody where there are no tokens."""


def authorize_project(principal: Asker, *projects: str | None) -> None:
    """Forbidden unless who asks may act for one of the projects; None is what belongs to nobody yet."""
    if principal is None or principal.role == "admin" or not projects or None in projects:
        return
    if principal.project not in (PROVIDER, *projects):
        others = " or ".join(str(each) for each in dict.fromkeys(projects))
        raise Forbidden(f"{principal.name} belongs to project {principal.project} and does not speak for {others}")
