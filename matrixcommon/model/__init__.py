"""The types that all services share: hardware names, planes, quantities, errors, states, clocks, API models.

No input or output.
"""
