"""Test fixtures that ship with the package: a whole stack in one process in virtual time, the embedded Kubernetes API
alone, and stacks of real processes or containers.

pytest loads `plugin` through its entry point. The project's own tests use the same stacks.
"""
