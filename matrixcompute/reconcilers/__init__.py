"""Deeds that come round by themselves: health, convergence, resumption, orphans."""
