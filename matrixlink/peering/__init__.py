"""Who reaches whom over a plane.

It carries no bytes.
"""
