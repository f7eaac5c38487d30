"""What all of Kubernetes shares: errors, names, quantities, selectors, paths, times.

Imports no other room.
"""
