"""What is believed of links: states, flap damping, faults localised.

It re-routes nobody.
"""
