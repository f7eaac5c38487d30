"""The gateway between a service and all agents of the fleet: reports up, specs down. It is the same for both
services."""
