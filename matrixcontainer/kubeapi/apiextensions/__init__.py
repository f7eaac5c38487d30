"""CustomResourceDefinitions: decoded, validated, turned into resources, and their objects' strategy.

Serves nothing by itself; a controller registers what is accepted.
"""
