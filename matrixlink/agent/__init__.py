"""LinkAgent, the node's side of MatrixLink: programs, counters, probes.

It never reads a table of the service.
"""

from matrixlink.agent.agent import HeldProgram, LinkAgent, link_stages
from matrixlink.agent.probing import AgentProbing

__all__ = ["AgentProbing", "HeldProgram", "LinkAgent", "link_stages"]
