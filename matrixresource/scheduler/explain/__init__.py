"""Why a request does not fit, what would help, and when it could start.

Nothing here changes the state.
"""
