"""The life of pods on emulated nodes as pure functions, what pods and nodes use, logs.

Never writes; controllers and mirrors perform what it returns.
"""
