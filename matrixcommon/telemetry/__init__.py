"""A process's telemetry: the declaration of metrics, and the trace context of the work it does."""
