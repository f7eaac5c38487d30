"""What several benchmarks of the allocator, and its tests, share."""
