"""Fault scenarios: one file says what fails, what has to happen, and how to tell that the fault took effect.

The runner uses the services over REST, as any client would, and knows nothing else of them.
"""
