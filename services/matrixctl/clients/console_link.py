"""The console's address with a way in."""

from __future__ import annotations

from services.matrixctl.clients.api_client import ApiClient


def console_link(client: ApiClient) -> str:
    """Logs in as the stack's administrator, once and within a minute; holds no token. Raises what the console refuses
    with."""
    code = client.call("console", "POST", "/login-links")["code"]
    return f"{client.url('console')}/#login={code}"
