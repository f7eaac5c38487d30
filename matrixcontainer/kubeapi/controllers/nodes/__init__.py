"""Nodes and the pods on them: binding, emulated kubelets, taints, eviction.

Never makes a pod.
"""
