"""MatrixContainer: instances, their workloads and the hardware beneath them, as Kubernetes resources.

It makes no decisions about hardware or networks: it observes, calls the services and reports status.
"""
