"""The catalogue of a stack's metrics, and the alerts on them."""
