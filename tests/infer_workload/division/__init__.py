"""How the workload shares the fabric: what it sends, and what it gets beside others."""
