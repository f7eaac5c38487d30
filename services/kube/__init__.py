"""The process of the embedded Kubernetes API. Requests are handled in `matrixcontainer.kubeapi`."""
