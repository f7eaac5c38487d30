"""Table columns and cells of built-in kinds, as `kubectl get` prints them.

Printers never change objects.
"""
