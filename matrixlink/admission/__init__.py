"""Floors within what links have: admission, the bandwidth ledger, what failures would leave.

It programs no agent.
"""
