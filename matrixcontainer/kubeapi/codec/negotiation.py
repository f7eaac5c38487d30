"""Content negotiation: the first entry of the Accept header that this server supports."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from matrixcontainer.kubeapi.meta.errors import not_acceptable

OFFERED_MEDIA_TYPES = ("application/json", "application/yaml")


@dataclass(frozen=True)
class NegotiatedType:
    """The negotiated response. `form` is "" for the object itself, or Table, PartialObjectMetadata(List)."""

    media: str = "application/json"
    form: str = ""
    version: str = "v1"


@lru_cache(maxsize=256)
def negotiate(accept: str, forms: bool = True) -> NegotiatedType:
    """The first supported entry. Raises ApiError 406 if there is none."""
    if not accept:
        return NegotiatedType()
    for media, accepted in _entries(accept):
        if media in ("*/*", "application/*", "text/*"):
            media = "application/json"
        if media in OFFERED_MEDIA_TYPES and (negotiated := _answer(media, accepted, forms)) is not None:
            return negotiated
    raise not_acceptable(", ".join(OFFERED_MEDIA_TYPES))


def _entries(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(media type, parameters) of the entries, in order."""
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        yield media, dict(part.split("=", 1) for part in parameters if "=" in part)


def _answer(media: str, accepted: dict[str, str], forms: bool) -> NegotiatedType | None:
    form = accepted.get("as", "")
    if not form:
        return NegotiatedType(media)
    if not forms or accepted.get("g") != "meta.k8s.io" or accepted.get("v") not in ("v1", "v1beta1"):
        return None
    if form in ("PartialObjectMetadata", "PartialObjectMetadataList", "Table"):
        return NegotiatedType(media, form, accepted["v"])
    return None


@lru_cache(maxsize=64)
def wants_aggregated(accept: str) -> bool:
    """Whether the header prefers aggregated discovery to plain JSON."""
    for media, accepted in _entries(accept):
        if media == "application/json" and ("as" not in accepted or AGGREGATED.items() <= accepted.items()):
            return "as" in accepted
    return False


AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
AGGREGATED_TYPE = ";".join(["application/json", *(f"{key}={value}" for key, value in AGGREGATED.items())])
