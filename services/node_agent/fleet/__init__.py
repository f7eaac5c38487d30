"""The emulated nodes and what outlives the process that plays them.

It decides nothing of the control plane's.
"""
