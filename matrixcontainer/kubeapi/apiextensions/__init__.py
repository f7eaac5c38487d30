"""CustomResourceDefinitions: decoding, validation, the resources they define and the strategy of their objects.

It serves nothing itself; a controller registers the resources of accepted definitions.
"""
