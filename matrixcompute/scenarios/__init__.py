"""Fault scenarios: one file that says what fails, what has to happen, and how it is known that the fault happened.

It asks the services over REST as any client would, and is told nothing else of them.
"""
