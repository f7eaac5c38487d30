"""Binding of the port, before anything else is loaded, so that a taken port is reported at once."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener
