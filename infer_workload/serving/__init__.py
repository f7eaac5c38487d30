"""Live deployments: engines driven by the clock, metrics and routes. Their timing comes from `timing`."""
