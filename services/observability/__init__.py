"""What a stack tells of itself, gathered: the catalogue of metrics, and the alerts on them."""
