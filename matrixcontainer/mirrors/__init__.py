"""What MatrixResource and MatrixLink know, shown as Kubernetes objects, and kubelets for mirrored nodes.

The services stay the source of truth; written back is one thing, who keeps newcomers off a node (`cordons`).
"""
