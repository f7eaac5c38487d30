"""Which probes to send, and which part is at fault by what comes back.

Pure: agents send, controllers act.
"""
