"""The pod scheduler: single pods, gangs and PodGroups, placed by MatrixResource.

It never decides where there is capacity; MatrixResource does.
"""
