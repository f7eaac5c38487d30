"""Which probes to send, and which part is at fault given their results.

Pure: agents send, controllers act.
"""
