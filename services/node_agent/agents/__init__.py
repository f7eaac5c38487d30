"""The agents of every node and the channels that join them to their services.

They play no hardware.
"""
