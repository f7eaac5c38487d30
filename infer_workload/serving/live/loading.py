"""When what loads is there: a deployment that starts, nodes that join one that serves, and ranks that are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass
class Loading:
    """Of one deployment. `nodes`: those that load before they are used, each with the moment when it has."""

    since: float = 0.0
    """When the deployment began to load."""
    serves_from: float = inf
    paused_until: float = 0.0
    """Decode rebuilds its ranks until then."""
    gain_at: float = inf
    """When the last of the nodes has loaded: they are used together."""
    nodes: dict[str, float] = field(default_factory=dict)

    def start(self, now: float, takes_s: float) -> None:
        """The whole deployment loads."""
        self.since = now
        self.serves_from = now + takes_s

    def wait_for(self, nodes: Mapping[str, float]) -> None:
        """Have these join, and no others."""
        self.nodes = dict(nodes)
        self.gain_at = max(self.nodes.values(), default=inf)

    def left_at(self, now: float) -> dict[str, float]:
        """Those that still load by then."""
        return {node: at for node, at in self.nodes.items() if at > now}

    def stop(self) -> None:
        """There is nothing any more that loads."""
        self.serves_from = self.gain_at = inf
        self.paused_until = 0.0
        self.nodes.clear()
