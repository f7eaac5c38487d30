"""Patterns of traffic: collectives, messages, RDMA and VPC paths.

It decides no rate.
"""
