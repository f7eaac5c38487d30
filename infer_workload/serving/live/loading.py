"""Loading times: of a deployment that starts, of nodes that join a serving one, and of ranks that are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass
class Loading:
    """The loading times of one deployment. `nodes`: the nodes that are loading, each with the time when it is done."""

    since: float = 0.0
    """When the deployment began to load."""
    serves_from: float = inf
    paused_until: float = 0.0
    """When decode has rebuilt its ranks."""
    scale_out_at: float = inf
    """When the last of the nodes has loaded: they are put to use together."""
    nodes: dict[str, float] = field(default_factory=dict)

    def start(self, now: float, takes_s: float) -> None:
        """Begin to load the whole deployment."""
        self.since = now
        self.serves_from = now + takes_s

    def wait_for(self, nodes: Mapping[str, float]) -> None:
        """Set the nodes that join, replacing any before."""
        self.nodes = dict(nodes)
        self.scale_out_at = max(self.nodes.values(), default=inf)

    def remaining_at(self, now: float) -> dict[str, float]:
        """The nodes still loading at `now`."""
        return {node: at for node, at in self.nodes.items() if at > now}

    def stop(self) -> None:
        """Forget everything that loads."""
        self.serves_from = self.scale_out_at = inf
        self.paused_until = 0.0
        self.nodes.clear()
