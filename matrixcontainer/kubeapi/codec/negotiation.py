"""What a client wants to read: the Accept header walked in order until a form is found that this server speaks."""

from dataclasses import dataclass
from functools import lru_cache

from matrixcontainer.kubeapi.meta.errors import not_acceptable

PROTOBUF = "application/vnd.kubernetes.protobuf"
OFFERED = ("application/json", "application/yaml", PROTOBUF)


@dataclass(frozen=True)
class Answer:
    """`form` is "" for the object itself, else Table, PartialObjectMetadata or PartialObjectMetadataList."""

    media: str = "application/json"
    form: str = ""
    version: str = "v1"


@lru_cache(maxsize=256)
def choose(accept: str, forms: bool = True) -> Answer:
    """The first entry that can be served, protobuf only when there is no other; raises ApiError 406 without any."""
    if not accept:
        return Answer()
    last_resort: Answer | None = None
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        reported = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media in ("*/*", "application/*", "text/*"):
            media = "application/json"
        if media not in OFFERED:
            continue
        if (answer := _answer(media, reported, forms)) is None:
            continue
        if media != PROTOBUF:
            return answer
        last_resort = last_resort or answer
    if last_resort:
        return last_resort
    raise not_acceptable(", ".join(OFFERED))


def _answer(media: str, reported: dict[str, str], forms: bool) -> Answer | None:
    form = reported.get("as", "")
    if not form:
        return Answer(media)
    if not forms or reported.get("g") != "meta.k8s.io" or reported.get("v") not in ("v1", "v1beta1"):
        return None
    if form in ("PartialObjectMetadata", "PartialObjectMetadataList") or (form == "Table" and media != PROTOBUF):
        return Answer(media, form, reported["v"])
    return None


@lru_cache(maxsize=64)
def wants_aggregated(accept: str) -> str:
    """v2 when aggregated discovery comes before plain JSON in the header, else ""."""
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        reported = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media != "application/json":
            continue
        if reported.get("as") == "APIGroupDiscoveryList" and reported.get("g") == "apidiscovery.k8s.io":
            if reported.get("v") == "v2":
                return "v2"
            continue
        if "as" not in reported:
            return ""
    return ""


AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
