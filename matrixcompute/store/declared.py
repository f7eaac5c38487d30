"""DeclaredRow: a row that stores a request unchanged, such as a policy."""

from __future__ import annotations

from typing import Any, Protocol, Self

from sqlalchemy import JSON
from sqlalchemy.orm import Mapped, mapped_column

from matrixcommon.persistence.resource_row import ResourceRow


class Declaration(Protocol):
    """A request of a resource with labels."""

    labels: dict[str, str]

    @classmethod
    def from_stored(cls, obj: Any) -> Self: ...

    def model_copy(self, *, update: dict[str, Any]) -> Self: ...

    def wire(self) -> dict[str, Any]: ...


class DeclaredRow(ResourceRow):
    """`spec` is the request in its wire form."""

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)

    def declare(self, body: Declaration) -> None:
        """Store the request. The generation increases if anything but the labels changed."""
        if self.spec is not None and self.spec != body.wire():
            before = type(body).from_stored(self.spec)
            self.generation += before.model_copy(update={"labels": body.labels}) != body
        self.spec, self.labels = body.wire(), body.labels
