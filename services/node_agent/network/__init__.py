"""Probes and traffic over the emulated ports. The control plane sees them only by counters and probe results."""
