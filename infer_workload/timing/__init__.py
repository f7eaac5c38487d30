"""The duration of a step, from operators, dies and the fabric. Pure functions: no queues, no requests."""
