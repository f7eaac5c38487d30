"""What the benchmark compares with the embedded Kubernetes API."""
