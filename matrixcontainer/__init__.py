"""MatrixContainer: instances, their workloads and what lies under them, as Kubernetes resources.

Decides nothing about hardware or network: it observes, asks the services and reports.
"""
