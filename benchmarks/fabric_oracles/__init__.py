"""Reference solvers for the fabric core: linear programmes, splittable flows, reachability, runs over time.

The product never runs them.
"""
