"""Kubernetes mirrors of MatrixResource and MatrixLink objects, and virtual kubelets for the mirrored nodes.

The services remain the source of truth; only cordons are synchronised back to them (`cordons`).
"""
