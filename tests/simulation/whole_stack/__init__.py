"""The whole stack under one seed: every message, mishap and request is drawn, and every promise is checked after each.

Begin with `simulation.py`. `python -m tests.simulation.whole_stack SEED` runs one.
"""
