"""`matrixctl explain`: kinds, their fields, states, condition types and reasons, from the code that declares them.

It needs no running stack.
"""
