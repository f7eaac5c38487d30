"""Controllers of Deployments, ReplicaSets, Jobs and HorizontalPodAutoscalers: they decide how many pods there are.

They never place or run pods.
"""
