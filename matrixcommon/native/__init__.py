"""Packages compiled to machine code: found, loaded, built.

It names no package; each says for itself what is compiled.
"""
