"""Maintenance of a node, a cabinet, a switch or a supernode, live: what is asked, and what is done next.

It keeps no state but its tables'.
"""
