"""Packages compiled to machine code: found, loaded, built.

It names no package; each declares for itself what is compiled.
"""
