"""Commands about capacity: planning, quotas, reservations, allocations and defragmentation."""
