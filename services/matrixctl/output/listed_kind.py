"""What `get` knows about a collection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListedKind:
    """One collection. `wide` columns follow the others with `-o wide`; a `whole` collection serves no single
    resources."""

    name: str
    service: str
    columns: str
    wide: str
    aliases: str
    order: str = "name"
    whole: bool = False
    collection: str = ""
    """The service's name for it, if it differs from the noun."""
    means: str = ""
    """A description, for nouns that may be misunderstood; shown when the list is empty."""
    request_beside: tuple[str, ...] = ()
    """For views with a `request` field: fields of the request outside of it."""
    content: str = ""
    """The path below its own that holds the rest of the request, if the view does not."""
    others: tuple[str, ...] = ()
    """Other services that serve the collection too; the column `service` says which."""

    @property
    def path(self) -> str:
        return f"/v1/{self.collection or self.name}"

    def shown(self, wide: bool) -> str:
        return f"{self.columns}, {self.wide}" if wide and self.wide else self.columns
