"""How many members something should have.

A pure decision on what is observed, a policy, and what the decision itself remembers.
"""
