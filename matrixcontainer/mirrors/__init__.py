"""What MatrixResource and MatrixLink know, shown as Kubernetes objects, and kubelets for mirrored nodes.

Never writes back: the services stay the source of truth.
"""
