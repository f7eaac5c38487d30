"""The workflow engine: steps done and undone across restarts.

It knows no workflow by name.
"""
