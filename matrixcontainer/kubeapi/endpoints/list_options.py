"""Validation of list and watch options; contradictory ones are rejected before anything is read."""

from collections.abc import Mapping

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError, Cause

MATCH = "resourceVersionMatch"
EXACT, NOT_OLDER = "Exact", "NotOlderThan"
UNSIGNED_64_END, UNSIGNED_64_DIGITS_MAX = 2**64, 20


def check_list(query: Mapping[str, str]) -> None:
    """Raise ApiError 422 with all causes, or 400 for an invalid resourceVersion."""
    match, revision, token = query.get(MATCH, ""), query.get("resourceVersion", ""), query.get("continue", "")
    found: list[Cause] = []
    if match:
        if not revision:
            found.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden unless resourceVersion is provided"))
        if token:
            found.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER):
            found.append(errors.not_supported(MATCH, match, [EXACT, NOT_OLDER, ""]))
        if match == EXACT and revision == "0":
            found.append(errors.forbidden_field(MATCH, f'{MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        found.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _refuse(found)
    if token and revision not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    if why := _revision_error(revision):
        raise errors.bad_request(f"invalid resource version: {why}")


def check_watch(query: Mapping[str, str]) -> None:
    """Raise ApiError 422 with all causes, or, as upstream, 500 for an invalid resourceVersion."""
    match = query.get(MATCH, "")
    found: list[Cause] = []
    if "sendInitialEvents" in query:
        if match != NOT_OLDER:
            text = f"sendInitialEvents requires setting {MATCH} to {NOT_OLDER}"
            found.append(errors.forbidden_field(MATCH, text))
    elif match:
        text = f"{MATCH} is forbidden for watch unless sendInitialEvents is provided"
        found.append(errors.forbidden_field(MATCH, text))
    if match and match != NOT_OLDER:
        found.append(errors.not_supported(MATCH, match, [NOT_OLDER]))
    if match and query.get("continue"):
        found.append(errors.forbidden_field(MATCH, f"{MATCH} is forbidden when continue is provided"))
    _refuse(found)
    if why := _revision_error(query.get("resourceVersion", "")):
        raise ApiError(500, "", why)


def _refuse(found: list[Cause]) -> None:
    if found:
        raise errors.unprocessable("ListOptions", "meta.k8s.io", "", found)


def _revision_error(text: str) -> str:
    """Why a text is not a resourceVersion; "" if it is one. Checks the length first, as Python does not parse numbers
    with thousands of digits."""
    digits = text.isascii() and text.isdigit() and len(text) <= UNSIGNED_64_DIGITS_MAX
    if not text or (digits and int(text) < UNSIGNED_64_END):
        return ""
    return f'resourceVersion: Invalid value: {errors.shown(text)}: strconv.ParseUint: parsing "{text}": invalid syntax'
