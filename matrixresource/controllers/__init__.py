"""Deeds that come round by themselves: reading reports, watching leases."""
