"""Live maintenance of a node, cabinet, switch or supernode: its contract, and the decision what to do next.

It keeps no state outside its tables.
"""
