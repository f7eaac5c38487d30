"""The workflow engine: steps done and undone across restarts, for whichever service.

It knows no workflow and no resource by name.
"""
