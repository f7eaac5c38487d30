"""The workflow engine: durable workflows whose steps are done and undone across restarts, for any service.

It knows no particular workflow or resource.
"""
