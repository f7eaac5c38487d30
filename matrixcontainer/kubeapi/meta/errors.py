"""API errors: Status objects with a reason that clients branch on.

Every error of the server is an `ApiError`, rendered as `kind: Status`; an Invalid one lists all causes with their
fields. Go clients branch on `reason`, Python clients on the HTTP code, people read `message`. Messages follow the
public API conventions, because operators' tests compare them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()


@dataclass(frozen=True)
class Cause:
    """One error in one field: reason (FieldValueInvalid, ...), message without the field, and field path."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Verbatim(str):
    """An invalid value that is shown verbatim, such as `0x0`."""


def format_value(value: Any) -> str:
    """An invalid value as the API prints it: strings quoted, anything else as JSON."""
    if isinstance(value, Verbatim):
        return value
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {format_value(value)}: {detail}", field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueTypeInvalid", f"Invalid value: {format_value(value)}: {detail}", field)


def not_supported(field: str, value: Any, allowed: list[Any]) -> Cause:
    words = ", ".join(format_value(word) for word in allowed)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {format_value(value)}: supported values: {words}", field
    )


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {format_value(value)}", field)


def not_found_value(field: str, value: Any) -> Cause:
    return Cause("FieldValueNotFound", f"Not found: {format_value(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, actual: int, limit: int) -> Cause:
    return Cause("FieldValueTooMany", f"Too many: {actual}: must have at most {limit} items", field)


def forbidden_field(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


class ApiError(Exception):
    """An error with HTTP code, reason, message and details; `headers` are added to the response."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers: dict[str, str] = {}
        self.metadata: dict[str, Any] = {}
        self.shows_details = False  # even if empty

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None or self.shows_details:
            body["details"] = self.details or {}
        return body | {"code": self.code}


@contextmanager
def ignoring(*codes: int) -> Iterator[None]:
    """Context that suppresses ApiErrors with these codes, which other clients may cause at any time."""
    try:
        yield
    except ApiError as failure:
        if failure.code not in codes:
            raise


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(name: str = "", group: str = "", kind: str = "", **more: Any) -> dict[str, Any]:
    found = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in found.items() if value}


def not_found(plural: str, group: str, name: str) -> ApiError:
    text = f'{qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", text, _details(name, group, plural))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


class PlainTextError(ApiError):
    """An error outside of the API proper, which is returned as plain text instead of a Status."""

    def page(self, path: str) -> str:
        return f"{self.message}\n"


class PageNotFound(PlainTextError):
    """404 for a path outside of all groups."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


class MalformedRequest(PlainTextError):
    """500 for a request that fails before it was routed."""

    def __init__(self, message: str) -> None:
        super().__init__(500, "", message)

    def page(self, path: str) -> str:
        return f"Internal Server Error: {json.dumps(path)}: {self.message}\n"


def already_exists(plural: str, group: str, name: str, terminating: bool = False, generated: bool = False) -> ApiError:
    """409; `terminating`: the existing object is being deleted; `generated`: the server generated the name."""
    text = f'{qualified(plural, group)} "{name}" already exists'
    if generated:
        text += ", the server was not able to generate a unique name for the object"
    text = f"object is being deleted: {text}" if terminating else text
    return ApiError(409, "AlreadyExists", text, _details(name, group, plural))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, message: str = STALE) -> ApiError:
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
    return ApiError(409, "Conflict", text, _details(name, group, plural))


def unprocessable(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """422 Invalid with all causes, joined in the message as upstream does."""
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    text = f'{qualified(kind, group)} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", text, _details(name, group, kind, causes=listed))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, message: str, causes: list[Cause] | None = None) -> ApiError:
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes or []]
    quoted = f' "{name}"' if name else ""
    text = f"{qualified(plural, group)}{quoted} is forbidden: {message}"
    return ApiError(403, "Forbidden", text, _details(name, group, plural, causes=listed))


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> ApiError:
    return ApiError(405, "MethodNotAllowed", message, {})


def not_acceptable(accepted: str) -> ApiError:
    text = f"only the following media types are accepted: {accepted}"
    return ApiError(406, "NotAcceptable", text)


def unsupported_media_type(accepted: list[str]) -> ApiError:
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", text)


def unsupported_encoding(encoding: str) -> ApiError:
    text = f"the body of the request was encoded as {encoding[:40]} - accepted content encodings include: identity"
    error = ApiError(415, "UnsupportedMediaType", text)
    error.headers["Accept-Encoding"] = "identity"
    return error


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def untyped(message: str) -> ApiError:
    """500 without a reason and with the bare message."""
    return ApiError(500, "", message)


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
