"""Controllers, which act on committed objects; `manager` creates and runs them.

They never answer clients and never import endpoints.
"""
