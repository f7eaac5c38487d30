"""How the model of CloudMatrix-Infer stands to the published figures, how its fitted values were found, and what each
mechanism is worth.

The product never runs it.
"""
