"""Options of a request besides its body, and the outcome of a verb."""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.objects import Record


@dataclass
class Options:
    """Options of a write. `warnings` collects what becomes Warning headers."""

    user: str = "system:admin"
    field_manager: str = ""
    user_agent: str = ""
    field_validation: str = "Warn"  # Strict, Warn, Ignore
    dry_run: bool = False
    force: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    from_controller: bool = False
    caller: User | None = None  # None: the server itself
    body: bytes = b""  # as received, for messages that quote it

    @property
    def manager(self) -> str:
        return self.field_manager or self.user_agent.split("/", 1)[0] or "unknown"


@dataclass
class Deletion:
    """DeleteOptions, from the body or the query."""

    propagation: str = ""  # Background, Foreground, Orphan
    grace_s: int | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


@dataclass
class Outcome:
    """The object after the verb, in the version of the request, and whether it was `created` or is `deleted`."""

    obj: dict[str, Any]
    created: bool = False
    deleted: bool = False
    record: Record | None = None
