"""Long work as lists of steps: create, resize, move, replace, delete.

It keeps no state outside the workflow engine's.
"""
