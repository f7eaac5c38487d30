"""Usage and its limits over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from infer_workload.metering.access import USAGE, USAGE_LIMITS
from infer_workload.metering.contract import BUCKETS_S, Bucket, UsageLimitRequest, UsageLimitView, UsageView
from infer_workload.metering.service import UsageService
from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.list_params import Params
from matrixcommon.api.listing import page
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import parse_timestamp, timestamp
from matrixcommon.model.resource_key import reference_to

GROUPS = ("key", "deployment", "model")


def routes(usage: UsageService) -> APIRouter:
    """The routes over one `UsageService`."""
    api = ResourceRoutes(usage.records)

    @api.of(USAGE).ask("LIST")
    async def list_usage(
        params: Params,
        bucket: Annotated[Bucket, Query(description="width of the buckets, emulated time; all: one sum")] = "all",
        group_by: Annotated[
            str,
            Query(
                alias="groupBy",
                description=f"comma-separated list of {', '.join(GROUPS)}; usage is always grouped by project",
            ),
        ] = ",".join(GROUPS),
        start: Annotated[str | None, Query(description="first minute to include, RFC 3339")] = None,
        end: Annotated[str | None, Query(description="end of the range, exclusive, RFC 3339")] = None,
    ) -> Response:
        groups = [each.strip() for each in group_by.split(",") if each.strip()]
        for each in groups:
            if each not in GROUPS:
                raise InvalidField(f"{each[:40]!r} is not one of {', '.join(GROUPS)}", field="groupBy")
        width = BUCKETS_S.get(bucket)
        since, until = _moment("start", start), _moment("end", end)
        if since is not None and until is not None and until < since:
            raise InvalidField("must not be before start", field="end")
        rows = usage.sum_usage(groups, width, since, until)
        return JsonResponse(page([_view(row, width).wire() for row in rows], params))

    limits = api.of(USAGE_LIMITS)
    limits.list(rows_shown=usage.views)
    limits.get(usage.view)

    @limits.change("PUT")
    async def ensure_usage_limit(name: str, body: UsageLimitRequest, validate_only: bool = False) -> UsageLimitView:
        """Create or update a limit. Usage earlier in the present minute and day counts."""
        return usage.ensure(name, body, validate_only=validate_only)

    @limits.change("DELETE")
    async def delete_usage_limit(name: str, validate_only: bool = False) -> None:
        """Delete a limit."""
        usage.delete(name, validate_only=validate_only)

    return api.router


def _moment(field: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_timestamp(text)
    except ValueError as wrong:
        why = f"{text[:40]!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"
        raise InvalidField(why, field=field) from wrong


def _view(row: dict[str, Any], width: int | None) -> UsageView:
    project = row["project"]
    if "deployment" in row:
        row["deployment"] = reference_to(row["deployment"], project)
    parts = [row[name] for name in GROUPS if name in row]
    at = row.pop("bucket", None)
    if at is not None and width is not None:
        row |= {"bucket_start": timestamp(at), "bucket_end": timestamp(at + width)}
        parts.append(timestamp(at))
    return UsageView(name=".".join(parts) or project, **row)
