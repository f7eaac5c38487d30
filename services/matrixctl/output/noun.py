"""What `get` knows of a collection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """One collection. `wide` columns follow the others under `-o wide`; `whole` ones are not served one by one."""

    name: str
    service: str
    columns: str
    wide: str
    aliases: str
    order: str = "name"
    whole: bool = False
    collection: str = ""
    """What the service calls it, where that is not the noun."""
    means: str = ""
    """What it is, where the word may be taken for something else; shown where there is none."""
    request_beside: tuple[str, ...] = ()
    """Where it is shown with `request`, the fields that are asked for beside what stands in there."""
    content: str = ""
    """The path behind its own where the rest of what was asked for is, if it is not shown."""
    others: tuple[str, ...] = ()
    """Services that have some too; the column `service` says whose each is."""

    @property
    def path(self) -> str:
        return f"/v1/{self.collection or self.name}"

    def shown(self, wide: bool) -> str:
        return f"{self.columns}, {self.wide}" if wide and self.wide else self.columns
