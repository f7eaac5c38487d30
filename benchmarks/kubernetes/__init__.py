"""What stands beside the embedded Kubernetes API in its benchmark."""
