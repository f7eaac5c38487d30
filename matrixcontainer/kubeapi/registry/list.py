"""Lists: one filtered snapshot, in pages that all show the same revision.

A continue token holds the revision of the first page and the last key returned. The state at that revision is rebuilt
from the history, so tokens survive a restart and need no memory. Once the history no longer reaches back that far, the
response is 410 with a token that continues from the same key in the current state.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Record
from matrixcontainer.kubeapi.storage.store import Store


@dataclass
class Query:
    """Parameters of a list or watch."""

    namespace: str = ""
    labels: LabelSelector | None = None
    fields: FieldSelector | None = None
    limit: int = 0
    token: str = ""
    revision: str = ""
    match: str = ""  # NotOlderThan, Exact

    @property
    def exact(self) -> bool:
        """Whether the state at exactly `revision` is requested; also the default when paging from a revision."""
        return self.match == "Exact" or (not self.match and self.limit > 0 and self.revision not in ("", "0"))

    def matches(self, resource: Resource, record: Record) -> bool:
        if self.labels and not self.labels.matches_labels(record.labels):
            return False
        return not self.fields or self.fields.matches(resource.served_object(record))


@dataclass
class Page:
    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None

    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.token:
            found["continue"] = self.token
            if self.remaining is not None:
                found["remainingItemCount"] = self.remaining
        return found


def list_page(store: Store, resource: Resource, query: Query) -> Page:
    """Return one page. Raises ApiError 400 for a bad token, 410 for an expired one."""
    if query.token:
        revision, after = decode_continue_token(query.token)
        if revision == 0:
            revision = store.revision
        elif (
            not store.compacted_revision <= revision <= store.revision
        ):  # compacted, or from before the database was restored
            failure = errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list "  # noqa: E501
                "without the continue parameter, or use the continue token in this response to retrieve the remainder of "  # noqa: E501
                "the results. Continuing with the provided token results in an inconsistent list - objects that were "
                "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."  # noqa: E501
            )
            failure.metadata = {"continue": encode_continue_token(0, after)}
            raise failure
        records = [
            record for record in _objects_at(store, resource, query.namespace, revision) if list(record.key[1:]) > after
        ]
    else:
        revision = store.revision
        if query.exact:
            revision = int(query.revision)
            if revision < store.compacted_revision:
                raise errors.expired(f"The resourceVersion for the provided list is too old: {revision}")
        _require_revision_reached(store, query)
        records = _objects_at(store, resource, query.namespace, revision)
    selected = _select(records, resource, query)
    page = Page(selected, revision)
    if query.limit > 0 and len(selected) > query.limit:
        page.records = selected[: query.limit]
        page.token = encode_continue_token(revision, list(page.records[-1].key[1:]))
        if not query.labels and not query.fields:
            page.remaining = len(selected) - query.limit
    return page


def _objects_at(store: Store, resource: Resource, namespace: str, revision: int) -> list[Record]:
    if revision >= store.revision:
        return store.objects_of(resource.storage, namespace)
    return store.objects_at(resource.storage, namespace, revision)


def _select(records: list[Record], resource: Resource, query: Query) -> list[Record]:
    if query.fields and (name := query.fields.required_name()) is not None:
        records = [record for record in records if record.key[2] == name]
    if not query.labels and not query.fields:
        return records
    return [record for record in records if query.matches(resource, record)]


def _require_revision_reached(store: Store, query: Query) -> None:
    if query.revision and int(query.revision) > store.revision:
        text = f"Timeout: Too large resource version: {query.revision}, current: {store.revision}"
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        raise ApiError(504, "Timeout", text, details | {"retryAfterSeconds": 1})


def encode_continue_token(revision: int, after: list[str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": after}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_continue_token(token: str) -> tuple[int, list[str]]:
    try:
        payload = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        start = payload["start"]
        if payload["v"] != "meta.k8s.io/v1" or not all(isinstance(word, str) for word in start) or len(start) != 2:
            raise ValueError
        return int(payload["rv"]), start
    except (ValueError, KeyError, TypeError, OverflowError) as failure:
        raise errors.bad_request("continue key is not valid") from failure


def render_list(resource: Resource, page: Page) -> bytes:
    """The list as JSON, assembled from the stored bytes of its items."""
    meta = page.meta() if resource.type_name else {"continue": ""} | page.meta()  # custom ones always have it
    head = json.dumps(
        {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta},
        separators=(",", ":"),
    ).encode()
    items: Callable[[Record], bytes] = resource.item_bytes
    return head[:-1] + b',"items":[' + b",".join(map(items, page.records)) + b"]}"
