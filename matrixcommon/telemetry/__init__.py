"""Telemetry of a process: declarations of its metrics, and the trace contexts that its work belongs to."""
