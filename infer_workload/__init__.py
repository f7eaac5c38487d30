"""CloudMatrix-Infer: models served on an instance, live and in virtual time.

It allocates no nodes or slices: it runs on those of an instance.
"""
