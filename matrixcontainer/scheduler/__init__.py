"""Pods placed by MatrixResource: single ones, gangs, PodGroups.

Never decides where capacity is; MatrixResource does.
"""
