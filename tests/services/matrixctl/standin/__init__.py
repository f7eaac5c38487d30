"""A process that keeps the contract of a service and does nothing else, for tests of the supervisor."""
