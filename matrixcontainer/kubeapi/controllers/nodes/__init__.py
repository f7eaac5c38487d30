"""Controllers of nodes and the pods on them: default scheduler, emulated kubelets, taints and taint-based eviction.

They never create pods.
"""
