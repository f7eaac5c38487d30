"""Words that every service shares: names of hardware, planes, quantities, errors, states, clocks, API models.

It does no input or output.
"""
