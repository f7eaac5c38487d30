"""The presumed condition of links: states, flap damping, localisation of faults.

It reroutes nothing.
"""
