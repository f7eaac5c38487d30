"""The transport that the benchmark compares with the embedded Kubernetes API."""
