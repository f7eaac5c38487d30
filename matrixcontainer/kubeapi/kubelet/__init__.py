"""The emulated kubelet as pure functions: pod lifecycle, resource usage and logs.

It never writes; controllers and mirrors carry out what it returns.
"""
