"""Live deployments: engines driven by the clock, metering, metrics, routes.

It decides no timing.
"""
