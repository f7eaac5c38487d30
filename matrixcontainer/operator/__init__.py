"""The operator: CRDs, reconcile decisions, status, rights, leader election.

It never talks to hardware, only to MatrixCompute and the other services, and works with any Kubernetes API.
"""
