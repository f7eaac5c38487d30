"""How many members an instance or a pool should have.

A pure decision from an observation, a policy and the decision's own stored state.
"""
