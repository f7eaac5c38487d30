"""The cheapest moves that make room.

It carries none of them out.
"""
