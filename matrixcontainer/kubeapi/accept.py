"""What a client wants to read: the Accept header walked in order until a form is found that this server speaks."""

from dataclasses import dataclass
from functools import lru_cache

from matrixcontainer.kubeapi.errors import not_acceptable

OFFERED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(frozen=True)
class Answer:
    """`form` is "" for the object itself, else Table, PartialObjectMetadata or PartialObjectMetadataList."""

    media: str = "application/json"
    form: str = ""
    version: str = "v1"


@lru_cache(maxsize=256)
def choose(accept: str, forms: bool = True) -> Answer:
    """The first entry that can be served; raises ApiError 406 when none can."""
    if not accept:
        return Answer()
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        said = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media in ("*/*", "application/*", "text/*"):
            media = "application/json"
        if media not in ("application/json", "application/yaml"):
            continue
        form = said.get("as", "")
        if not form:
            return Answer(media)
        if not forms or said.get("g") != "meta.k8s.io" or said.get("v") not in ("v1", "v1beta1"):
            continue
        if form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            return Answer(media, form, said["v"])
    raise not_acceptable(OFFERED)


@lru_cache(maxsize=64)
def wants_aggregated(accept: str) -> str:
    """v2 or v2beta1 when aggregated discovery comes before plain JSON in the header, else ""."""
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        said = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media != "application/json":
            continue
        if said.get("as") == "APIGroupDiscoveryList" and said.get("g") == "apidiscovery.k8s.io":
            if said.get("v") in ("v2", "v2beta1"):
                return said["v"]
            continue
        if "as" not in said:
            return ""
    return ""


AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
