"""The agents of every node and the channels that connect them to their services."""
