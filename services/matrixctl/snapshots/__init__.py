"""Snapshots of a stack on this machine: taken while it runs, shown, and restored.

It stops the processes for as long as copying their stores takes, and asks no service for anything.
"""
