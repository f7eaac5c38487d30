"""Finding, loading and building packages that are compiled to machine code.

It names no package; each package declares what is compiled.
"""
