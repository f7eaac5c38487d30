"""Concepts of MatrixLink: classes of service, protection, states of slices, digests.

Pure.
"""
