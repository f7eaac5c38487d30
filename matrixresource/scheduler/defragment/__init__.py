"""The cheapest moves that make room.

Nothing here carries them out.
"""
