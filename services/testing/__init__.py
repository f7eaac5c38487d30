"""What tests are given: a whole stack in one process in virtual time, the embedded Kubernetes API alone, and stacks of
real processes or containers, as pytest fixtures that come with the package.

`plugin` is what pytest finds by its entry point. The project's own tests stand on the same stack.
"""
