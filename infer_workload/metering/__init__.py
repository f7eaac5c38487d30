"""Token usage by tenant and key, and its limits. It knows engines and deployments only by name."""
