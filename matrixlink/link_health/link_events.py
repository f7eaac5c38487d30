"""Events on ports that went down, lost lanes or came back, one per element: the switch if it took many links with it,
else the link.

Announced is what ports report; faults found by probes and damped ports have events of their own. Each node reports
separately, so events are delayed until everybody affected by the same cause has reported. What was announced last is in
the link's row, so a restart neither repeats nor forgets it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixlink.fabric.condition.fabric import DEGRADED, DOWN, UP, Fabric, health
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import LinkRow

SETTLE_S = 10.0
"""A heartbeat of the agents: within one, every node that has lost a switch has reported it."""


class LinkEvents:
    """`record_events` is called by the watcher, inside its transaction."""

    def __init__(self, store: LinkStore, fabric: Fabric, reports: Callable[[str], bool], clock: Clock) -> None:
        """`reports`: whether a node's agent is connected."""
        self._store = store
        self._is_reporting = reports
        self._fabric = fabric
        self._clock = clock

    def due(self) -> bool:
        """Whether some port has for a while had a state that was not announced. Once everything is announced, this is
        not checked again until a link changes."""
        return any(
            self._waited(row) for row in self._store.records.query_unless_known_empty(LinkRow, self._unannounced)
        )

    def _unannounced(self, session: Session) -> list[LinkRow]:
        return [row for row in self._store.links(session) if row.announced != row.port_state]

    def _waited(self, row: LinkRow) -> bool:
        return row.updated_at <= self._clock.now() - SETTLE_S

    def record_events(self, session: Session) -> int:
        """Add one event for each element that changed. Return how many."""
        unannounced = {row.name: row for row in self._unannounced(session)}
        announced = 0
        for state in sorted({row.port_state for row in unannounced.values()}):
            rows = {name: row for name, row in unannounced.items() if row.port_state == state}
            for switch, heard, links in self._switches(rows):
                self._record_switch_event(session, switch, heard, len(links), state)
                announced += 1
                for name in links:
                    rows.pop(name).announced = state
            for row in filter(self._waited, rows.values()):
                row.announced = state
                self._record_event(session, row.name, f"Link{state}", _message(row), state)
                announced += 1
        return announced

    def _switches(self, rows: dict[str, LinkRow]) -> Iterator[tuple[str, list[str], set[str]]]:
        """Switches at least half of whose links changed the same way together, each with all links to it that are
        reported on, and those that changed. The switch with the most comes first; a link is counted at one of its ends
        only."""
        by_switch: dict[str, set[str]] = defaultdict(set)
        for name, row in rows.items():
            for end in row.built["ends"]:
                by_switch[end].add(name)
        left = set(rows)
        for switch, links in sorted(by_switch.items(), key=lambda each: (-len(each[1]), each[0])):
            shared = links & left
            heard = self._links_to(switch) if len(shared) > 1 else []
            waited = any(self._waited(rows[name]) for name in shared)
            if heard and waited and 2 * len(shared) >= len(heard):
                left -= shared
                yield switch, heard, shared

    def _links_to(self, switch: str) -> list[str]:
        """The links to a switch from nodes that report; empty if it is not a switch."""
        supernode = self._fabric.supernode_of_part(switch)
        if supernode is None or all(switch != each.name for each in supernode.switches()):
            return []
        owners = supernode.ports_of(switch).items()
        return [f"{owner}.{port}" for owner, ports in owners if self._is_reporting(owner) for port in ports]

    def _record_switch_event(self, session: Session, switch: str, heard: list[str], changed: int, state: str) -> None:
        now = Counter(health(self._fabric.capacity(link), self._fabric.link(link).capacity_gbps) for link in heard)
        counts = [f"{now[each]} are {each.lower()}" for each in (DOWN, DEGRADED, UP) if now[each]]
        found = f"of {len(heard)} {', '.join(counts)}" if len(counts) > 1 else f"all {counts[0]}"
        text = f"{changed} links to {switch} went {state.lower()} together: {found}"
        below = DOWN if now[DOWN] == len(heard) else UP if now[UP] == len(heard) else DEGRADED
        self._record_event(session, switch, f"Switch{below}", text, below)

    def _record_event(self, session: Session, about: str, reason: str, text: str, state: str) -> None:
        self._store.record_event(session, about, reason, text, self._clock.now(), warning=state != UP)


def _message(row: LinkRow) -> str:
    if row.port_state == UP:
        return f"{row.name} carries its {row.built_gbps:g} GB/s again"
    reported = row.reported_gbps or 0.0
    if row.port_state == DOWN:
        return f"{row.name} carries nothing: its port is down"
    return f"{row.name} carries {reported:g} of its {row.built_gbps:g} GB/s"
