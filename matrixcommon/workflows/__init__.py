"""The workflow engine: runs and undoes steps across restarts, for any service.

It knows no particular workflow or resource.
"""
