"""The elastic memory service: context cache and model cache.

It times nothing: timing does.
"""
