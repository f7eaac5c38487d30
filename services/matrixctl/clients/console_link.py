"""The console's login link."""

from __future__ import annotations

from services.matrixctl.clients.api_client import ApiClient


def console_link(client: ApiClient) -> str:
    """Create a link that logs in as the stack's administrator, once, within a minute; it contains no token. Raises the
    console's errors."""
    code = client.call("console", "POST", "/login-links")["code"]
    return f"{client.url('console')}/#login={code}"
