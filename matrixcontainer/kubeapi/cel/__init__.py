"""CEL for CRD validation rules and webhook match conditions: type checking, compilation and cost limits.

It knows nothing of resources.
"""
