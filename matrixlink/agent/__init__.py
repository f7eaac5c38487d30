"""LinkAgent, the node's side of MatrixLink: programs, counters, probes.

It never reads the service's tables.
"""

from matrixlink.agent.agent import HeldProgram, LinkAgent, link_stages
from matrixlink.agent.probing import AgentProbing

__all__ = ["AgentProbing", "HeldProgram", "LinkAgent", "link_stages"]
