"""Controllers that every cluster needs: namespaces, CRDs, garbage collection, default roles, disruption budgets and
compaction.

They know nothing of workloads.
"""
