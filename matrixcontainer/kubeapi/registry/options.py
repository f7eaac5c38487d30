"""What a request says beside its body, and what comes of it."""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.objects import Record


@dataclass
class Options:
    """What a request says beside its body. `warnings` is filled on the way and becomes Warning headers."""

    user: str = "system:admin"
    field_manager: str = ""
    user_agent: str = ""
    field_validation: str = "Warn"  # Strict, Warn, Ignore
    dry_run: bool = False
    force: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    from_controller: bool = False
    caller: User | None = None  # nobody: the server itself
    body: bytes = b""  # as it came, for messages that repeat it

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
    """The object after the verb, in the version of the request; `created` and `gone` tell what became of it."""

    obj: dict[str, Any]
    created: bool = False
    gone: bool = False
    record: Record | None = None
