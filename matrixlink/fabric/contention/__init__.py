"""What traffic gets on ports that are shared with other traffic.

Ports are numbers here, and programs are plain data; no service is called.
"""
