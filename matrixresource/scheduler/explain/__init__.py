"""Why a request does not fit, what would help, when it would start.

It leaves the state as it found it.
"""
