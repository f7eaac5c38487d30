"""Telemetry: what moves over the fabric, as the counters that agents report tell it."""
