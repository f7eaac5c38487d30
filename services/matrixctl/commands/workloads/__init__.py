"""Commands about instances and the workloads on them."""
