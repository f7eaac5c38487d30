"""Step times, computed from operators, dies and the fabric. Pure functions: no queues, no requests."""
