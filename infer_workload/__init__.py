"""CloudMatrix-Infer: a model served on an instance, live and in virtual time.

It allocates nothing: it lives on what an instance has.
"""
