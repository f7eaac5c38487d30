"""Faults and load on the emulated hardware, over HTTP. The control plane is not informed of them."""
