"""A server keeps idle connections longer than its clients: whoever closes first may cut off what the other just sent."""

import httpx

from services.chassis.http_server.serving import server_config
from services.chassis.settings import Settings

GO_IDLE_TIMEOUT_S = 90
"""`IdleConnTimeout` of Go's `http.DefaultTransport`, the longest of the clients in use."""


async def nothing(scope, receive, send):
    pass


def test_clients_close_idle_connections_first():
    idle_s = server_config(nothing, Settings()).timeout_keep_alive
    assert idle_s > GO_IDLE_TIMEOUT_S > httpx.Limits().keepalive_expiry
