"""Calls one webhook over HTTPS with an AdmissionReview and checks its response.

`WebhookClient.call` returns the `response` of an AdmissionReview v1, or raises `WebhookCallError`; the failure policy
decides what follows. Webhooks are called by URL; service references cannot be resolved, as this server has no pod
network.
"""

import asyncio
import base64
import binascii
import ssl
from typing import Any
from urllib.parse import urlsplit

import orjson

from matrixcontainer.kubeapi.admission.webhook_matcher import Hook
from matrixcontainer.kubeapi.builtin.webhooks import NO_SERVICES
from matrixcontainer.kubeapi.schema.structural import Schema, drop_nulls
from matrixcontainer.kubeapi.schema.validation import validate

TEXT, OBJECT = {"type": "string"}, {"type": "object"}
STATUS = OBJECT | {"properties": {"message": TEXT, "reason": TEXT, "code": {"type": "integer"}, "details": OBJECT}}
RESPONSE = Schema(
    OBJECT
    | {
        "properties": {
            "uid": TEXT,
            "allowed": {"type": "boolean"},
            "status": STATUS,
            "patch": TEXT,
            "patchType": TEXT,
            "warnings": {"type": "array", "items": TEXT},
        }
    }
)
"""The fields of an admission.k8s.io/v1 AdmissionResponse that are used."""


class WebhookCallError(Exception):
    """The webhook could not be called, or its response is invalid."""


class WebhookClient:
    """Keeps one HTTP client per CA bundle; `close` closes their connections."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}

    async def call(self, hook: Hook, review: dict[str, Any]) -> dict[str, Any]:
        url = (hook.spec.get("clientConfig") or {}).get("url") or ""
        if not url:
            raise WebhookCallError(f"failed to call webhook: {NO_SERVICES}")
        between = "&" if urlsplit(url).query else "?"
        full_url = f"{url}{between}timeout={hook.timeout_s}s"
        try:
            async with asyncio.timeout(hook.timeout_s):
                response = await self._client(hook.ca).post(
                    full_url, content=orjson.dumps(review), headers={"content-type": "application/json"}
                )
        except TimeoutError as failure:
            raise WebhookCallError(f'failed to call webhook: Post "{full_url}": context deadline exceeded') from failure
        except Exception as failure:  # any error of the network or the certificate
            raise WebhookCallError(f'failed to call webhook: Post "{full_url}": {_reason(failure)}') from failure
        if response.status_code != 200:
            raise WebhookCallError(
                f"failed to call webhook: the server answered {response.status_code} {response.reason_phrase}"
            )
        return _parse_response(response.content, review["request"]["uid"])

    def _client(self, ca: str) -> Any:
        client = self._clients.get(ca)
        if client is None:
            import httpx

            if len(self._clients) > 64:
                self._clients.clear()
            limits = httpx.Limits(max_connections=64, max_keepalive_connections=8)
            client = httpx.AsyncClient(verify=_ssl_context(ca), timeout=None, trust_env=False, limits=limits)
            self._clients[ca] = client
        return client

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _ssl_context(ca: str) -> ssl.SSLContext:
    """Trust exactly the bundle, including a self-signed server certificate in it, as Go does."""
    context = ssl.create_default_context(cadata=ca) if ca else ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _reason(failure: Exception) -> str:
    return str(failure) or type(failure).__name__


def _parse_response(content: bytes, uid: str) -> dict[str, Any]:
    try:
        review = orjson.loads(content)
    except orjson.JSONDecodeError as failure:
        raise WebhookCallError(f"failed to call webhook: couldn't parse the answer: {failure}") from failure
    if not isinstance(review, dict) or not isinstance(review.get("response"), dict):
        raise WebhookCallError("webhook response was absent")
    version_kind = (review.get("apiVersion"), review.get("kind"))
    if version_kind != ("admission.k8s.io/v1", "AdmissionReview"):
        raise WebhookCallError(
            f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
            f"got {version_kind[0]}, Kind={version_kind[1]}"
        )
    response: dict[str, Any] = drop_nulls(review["response"], RESPONSE)
    if causes := validate(response, RESPONSE, below="response"):
        raise WebhookCallError(f"failed to call webhook: couldn't decode the answer: {causes[0]}")
    if response.get("uid") != uid:
        raise WebhookCallError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise WebhookCallError("webhook returned response.patch but not response.patchType=JSONPatch")
    return response


def parse_patch(response: dict[str, Any]) -> list[Any]:
    """The JSON patch in a response, or []. Raises WebhookCallError if it is malformed."""
    text = response.get("patch")
    if not text:
        return []
    try:
        patch = orjson.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, TypeError) as failure:
        raise WebhookCallError(f"the patch is not base64-encoded JSON: {failure}") from failure
    if not isinstance(patch, list):
        raise WebhookCallError("the patch is not a list of operations")
    return patch
