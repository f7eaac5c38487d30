"""Reported port neighbours, held back until they have settled.

Only ports that are not as built are stored: who was last seen there, since when, and what was adopted last. A port
counts once it has been stable for a while (`SETTLE_S`), so that a flapping port does not make version after version.
Changes that happen together are adopted together: while another port is changing, those that are due wait for it, up to
`SETTLE_S_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import JSON, Boolean, String
from sqlalchemy.orm import Mapped, mapped_column

from matrixresource.store.tables import Base

SETTLE_S = 30.0
"""Three heartbeats of the agents: all nodes have reported a switch's loss before it is judged."""

SETTLE_S_MAX = 150.0
"""The longest that a settled port waits for others that are still changing."""


@dataclass
class ObservedPort:
    """One port that is, was, or may become a deviation. `usual` marks one that is seen as built again."""

    seen: str | None
    since: float
    usual: bool = False
    taken: bool = False  # whether it counts as a deviation now
    taken_as: str | None = None

    @property
    def moving(self) -> bool:
        return self.taken is self.usual or (self.taken and self.seen != self.taken_as)


class ObservedPortsRow(Base):
    """One node that has ever reported its ports. `digest` is that of the last report, to recognise a repeated one."""

    __tablename__ = "observed_ports"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    supernode: Mapped[str] = mapped_column(String(63), index=True)
    digest: Mapped[str] = mapped_column(String(64), default="")
    moving: Mapped[bool] = mapped_column(Boolean, default=False, index=True)
    ports: Mapped[dict[str, dict[str, Any]]] = mapped_column(JSON, default=dict)

    def read(self) -> dict[str, ObservedPort]:
        return {name: ObservedPort(**port) for name, port in self.ports.items()}

    def write(self, ports: Mapping[str, ObservedPort]) -> None:
        """Store the ports that are not plainly as built."""
        kept = {name: port for name, port in sorted(ports.items()) if not port.usual or port.taken}
        self.ports = {name: asdict(port) for name, port in kept.items()}
        self.moving = any(port.moving for port in kept.values())

    def adopted_peers(self) -> dict[str, str | None]:
        """The ports that count as deviations, with their neighbours."""
        return {name: port.taken_as for name, port in self.read().items() if port.taken}


def record_report(
    ports: dict[str, ObservedPort], report: Mapping[str, str | None], usual: Mapping[str, str], now: float
) -> dict[str, ObservedPort]:
    """The ports after a report. Nothing is concluded from ports that it leaves out; unknown ports are ignored."""
    after = dict(ports)
    for name, peer in report.items():
        if name not in usual:
            continue
        before, as_built = after.get(name), peer == usual[name]
        if before is None:
            if not as_built:
                after[name] = ObservedPort(peer, now)
        elif (before.seen, before.usual) != (peer, as_built):
            after[name] = ObservedPort(peer, now, as_built, before.taken, before.taken_as)
    return after


def adoption_due(moving: Iterable[ObservedPort], now: float) -> bool:
    """Whether it is time to adopt the ports that have settled."""
    waits = [now - port.since for port in moving]
    settled = [wait for wait in waits if wait >= SETTLE_S]
    return bool(settled) and (len(settled) == len(waits) or max(settled) >= SETTLE_S_MAX)


def adopt_settled(ports: dict[str, ObservedPort], now: float) -> dict[str, ObservedPort]:
    """The ports after adopting those that have settled."""
    return {
        name: ObservedPort(port.seen, port.since, port.usual, not port.usual, None if port.usual else port.seen)
        if port.moving and now - port.since >= SETTLE_S
        else port
        for name, port in ports.items()
    }
