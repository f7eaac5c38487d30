"""Validation of list and watch options; contradictory ones are rejected before anything is read."""

from collections.abc import Mapping

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError, Cause

MATCH = "resourceVersionMatch"
EXACT, NOT_OLDER = "Exact", "NotOlderThan"
UNSIGNED_64_END, UNSIGNED_64_DIGITS_MAX = 2**64, 20


def validate_list_options(query: Mapping[str, str]) -> None:
    """Raise ApiError 422 with all causes, or 400 for an invalid resourceVersion."""
    match, revision, token = query.get(MATCH, ""), query.get("resourceVersion", ""), query.get("continue", "")
    causes: list[Cause] = []
    if match:
        if not revision:
            causes.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden unless resourceVersion is provided"))
        if token:
            causes.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER):
            causes.append(errors.not_supported(MATCH, match, [EXACT, NOT_OLDER, ""]))
        if match == EXACT and revision == "0":
            causes.append(errors.forbidden_field(MATCH, f'{MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _raise_if_invalid(causes)
    if token and revision not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    if message := _revision_error(revision):
        raise errors.bad_request(f"invalid resource version: {message}")


def validate_watch_options(query: Mapping[str, str]) -> None:
    """Raise ApiError 422 with all causes, or, as upstream, 500 for an invalid resourceVersion."""
    match = query.get(MATCH, "")
    causes: list[Cause] = []
    if "sendInitialEvents" in query:
        if match != NOT_OLDER:
            text = f"sendInitialEvents requires setting {MATCH} to {NOT_OLDER}"
            causes.append(errors.forbidden_field(MATCH, text))
    elif match:
        text = f"{MATCH} is forbidden for watch unless sendInitialEvents is provided"
        causes.append(errors.forbidden_field(MATCH, text))
    if match and match != NOT_OLDER:
        causes.append(errors.not_supported(MATCH, match, [NOT_OLDER]))
    if match and query.get("continue"):
        causes.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden when continue is provided"))
    _raise_if_invalid(causes)
    if message := _revision_error(query.get("resourceVersion", "")):
        raise ApiError(500, "", message)


def _raise_if_invalid(causes: list[Cause]) -> None:
    if causes:
        raise errors.unprocessable("ListOptions", "meta.k8s.io", "", causes)


def _revision_error(text: str) -> str:
    """Why a text is not a resourceVersion; "" if it is one. Checks the length first, as Python does not parse numbers
    with thousands of digits."""
    digits = text.isascii() and text.isdigit() and len(text) <= UNSIGNED_64_DIGITS_MAX
    if not text or (digits and int(text) < UNSIGNED_64_END):
        return ""
    parse_error = f'strconv.ParseUint: parsing "{text}": invalid syntax'
    return f"resourceVersion: Invalid value: {errors.format_value(text)}: {parse_error}"
