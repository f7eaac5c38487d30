"""An embedded Kubernetes API server that kubectl, Kopf, Helm and client-go cannot tell from a real one.

It knows nothing of Matrix*. `server` is the composition root; everything else imports only rooms below itself.
"""
