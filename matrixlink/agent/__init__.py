"""LinkAgent, MatrixLink's software on each node's Qingtian card, and what it is made of."""

from matrixlink.agent.agent import HeldProgram, LinkAgent
from matrixlink.agent.probing import AgentProbing
from matrixlink.agent.stages import link_stages

__all__ = ["AgentProbing", "HeldProgram", "LinkAgent", "link_stages"]
