"""Content negotiation: the first entry of the Accept header that this server supports."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from matrixcontainer.kubeapi.meta.errors import not_acceptable

OFFERED = ("application/json", "application/yaml")


@dataclass(frozen=True)
class Answer:
    """The negotiated response. `form` is "" for the object itself, or Table, PartialObjectMetadata(List)."""

    media: str = "application/json"
    form: str = ""
    version: str = "v1"


@lru_cache(maxsize=256)
def choose(accept: str, forms: bool = True) -> Answer:
    """The first supported entry. Raises ApiError 406 if there is none."""
    if not accept:
        return Answer()
    for media, reported in _entries(accept):
        if media in ("*/*", "application/*", "text/*"):
            media = "application/json"
        if media in OFFERED and (answer := _answer(media, reported, forms)) is not None:
            return answer
    raise not_acceptable(", ".join(OFFERED))


def _entries(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(media type, parameters) of the entries, in order."""
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        yield media, dict(part.split("=", 1) for part in parameters if "=" in part)


def _answer(media: str, reported: dict[str, str], forms: bool) -> Answer | None:
    form = reported.get("as", "")
    if not form:
        return Answer(media)
    if not forms or reported.get("g") != "meta.k8s.io" or reported.get("v") not in ("v1", "v1beta1"):
        return None
    if form in ("PartialObjectMetadata", "PartialObjectMetadataList", "Table"):
        return Answer(media, form, reported["v"])
    return None


@lru_cache(maxsize=64)
def wants_aggregated(accept: str) -> bool:
    """Whether the header prefers aggregated discovery to plain JSON."""
    for media, reported in _entries(accept):
        if media == "application/json" and ("as" not in reported or AGGREGATED.items() <= reported.items()):
            return "as" in reported
    return False


AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
AGGREGATED_TYPE = ";".join(["application/json", *(f"{key}={value}" for key, value in AGGREGATED.items())])
