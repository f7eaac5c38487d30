"""Solvers that the fabric core is compared with: linear programmes, splitting flows, reachability.

The product never runs them.
"""
