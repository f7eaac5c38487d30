"""Deeds that come round by themselves: reading what link agents report, rerouting around what was lost."""
