"""Kopf's HTTP session: what Kopf does not survive by itself.

Kopf ends, with the whole process, if the list or watch of a kind is answered with 404, as it is when a CRD is deleted
and the watch is opened again before Kopf has learned of that. A refused connection is something that it retries until
the kind is back, or until it stops watching the kind.
"""

from __future__ import annotations

import re

import aiohttp  # Kopf's own HTTP client
import kopf

COLLECTION = re.compile(r"/apis/[^/]+/[^/]+/[^/]+$")
NOT_FOUND = 404


def kopf_session(connection: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """A session as Kopf would make it from that connection, with our handling of kinds that are not served."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.as_ssl_context()),
        headers=connection.as_http_headers(),
        proxy=connection.proxy_url,
        trust_env=connection.trust_env,
        middlewares=[_retry_unserved_kinds],
    )
    return kopf.AiohttpSession(
        server=connection.server,
        default_namespace=connection.default_namespace,
        priority=connection.priority,
        expiration=connection.expiration,
        aiohttp_session=session,
    )


async def _retry_unserved_kinds(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    response = await handler(request)
    if response.status == NOT_FOUND and request.method == "GET" and COLLECTION.search(request.url.path):
        response.close()
        raise aiohttp.ClientConnectionError(f"{request.url.path} is not served")
    return response
