"""The operator: CRDs, reconcile decisions, status, rights, leader election.

Never talks to hardware; it asks MatrixCompute, and any Kubernetes API will do.
"""
