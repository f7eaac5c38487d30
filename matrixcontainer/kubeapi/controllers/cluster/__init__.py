"""What a cluster cannot do without: namespaces, CRDs, garbage collection, default roles, quotas, budgets, compaction.

Knows nothing of workloads.
"""
