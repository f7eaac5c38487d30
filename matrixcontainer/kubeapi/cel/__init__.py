"""The rules language of CRDs and webhooks: checked, compiled, costed.

Knows no resource.
"""
