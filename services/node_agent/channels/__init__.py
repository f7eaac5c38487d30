"""The channels between agents and their services, reports up and specs down.

It plays no hardware.
"""
