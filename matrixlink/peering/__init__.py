"""Who can reach whom over a plane.

It carries no traffic.
"""
