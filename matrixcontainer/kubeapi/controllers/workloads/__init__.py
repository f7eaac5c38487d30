"""Deployments, ReplicaSets, Jobs and autoscalers: how many pods there should be.

Never places or runs a pod.
"""
