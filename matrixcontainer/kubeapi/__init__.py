"""An embedded Kubernetes API: one process that kubectl, Kopf, Helm and client-go take for a real one.

Knows nothing of Matrix*; `server` puts it together, everything below imports downwards only.
"""
