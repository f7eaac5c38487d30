"""Code shared by several benchmarks of the allocator and its tests."""
