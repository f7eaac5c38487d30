"""ObjectMeta: the fields that the server sets, those that clients may set, and their validation."""

import random
import re
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.qualified_names import label_value_errors, qualified_name_errors
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp, timestamp
from matrixcontainer.kubeapi.schema import structural, validation
from matrixcontainer.kubeapi.schema.types import schema_of

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.registry.resource import Resource

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words are formed
ANNOTATIONS_BYTES_MAX = 256 * 1024

SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "generation",
    "selfLink",
)


def new_uid(rng: random.Random) -> str:
    bits = rng.getrandbits(128)
    bits = bits & ~(0xF000 << 64) | (0x4000 << 64)
    bits = bits & ~(0xC000 << 48) | (0x8000 << 48)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def generated_name(prefix: str, rng: random.Random) -> str:
    return prefix[:58] + "".join(rng.choice(NAME_LETTERS) for _ in range(5))


def metadata_of(body: dict[str, Any]) -> dict[str, Any]:
    """The metadata of an unvalidated body; {} if they are not an object."""
    meta = body.get("metadata")
    return meta if isinstance(meta, dict) else {}


def clean_metadata(obj: dict[str, Any], resource: "Resource") -> list[str]:
    """Drop unknown metadata fields and nulls, and return the unknown paths. Raises 400 if a field has a wrong type."""
    meta = obj.setdefault("metadata", {})
    if meta is None:
        meta = obj["metadata"] = {}
    if not isinstance(meta, dict):
        raise _decoding_error(f"{validation.type_of(meta)} into Go value of type v1.ObjectMeta", resource)
    known = schema_of("meta.v1.ObjectMeta")
    unknown: list[str] = []
    structural.drop_nulls(meta, known)
    if meta.get("creationTimestamp", "") is None:
        del meta["creationTimestamp"]
    structural.prune(meta, known, "metadata", unknown)
    for cause in validation.validate(meta, known, "metadata"):
        if cause.reason == "FieldValueTypeInvalid":
            raise _decoding_error(f"into field {cause}", resource)
    for key in VALIDATED_FIELDS:
        if key in meta and not meta[key]:
            del meta[key]
    return unknown


def _decoding_error(what: str, resource: "Resource") -> errors.ApiError:
    text = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    return errors.bad_request(f"{text}: json: cannot unmarshal {what}")


def check_metadata(obj: dict[str, Any], resource: "Resource") -> list[Cause]:
    """All errors in the metadata, including the name."""
    meta = obj["metadata"]
    causes: list[Cause] = []
    if (prefix := meta.get("generateName")) and (
        message := resource.strategy.check_name(_without_trailing_dash(prefix))
    ):
        causes.append(errors.invalid("metadata.generateName", prefix, message))
    name = meta.get("name", "")
    if not name:
        causes.append(errors.required("metadata.name", "name or generateName is required"))
    elif message := resource.strategy.check_name(name):
        causes.append(errors.invalid("metadata.name", name, message))
    causes += _check_labels_annotations_owners(meta)
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        causes += [
            errors.invalid("metadata.finalizers", finalizer, message) for message in qualified_name_errors(finalizer)
        ]
        if "/" not in finalizer and not resource.custom and finalizer not in STANDARD_FINALIZERS:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(errors.invalid(f"metadata.finalizers[{index}]", finalizer, message))
    conflicting = [word for word in ("foregroundDeletion", "orphan") if word in (meta.get("finalizers") or [])]
    if len(conflicting) == 2:
        message = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(errors.invalid("metadata.finalizers", meta["finalizers"], message))
    return causes


def _without_trailing_dash(prefix: str) -> str:
    """Replace the trailing dash that a generateName prefix may have but a name may not."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _check_labels_annotations_owners(meta: dict[str, Any]) -> list[Cause]:
    """Errors in labels, annotations and ownerReferences."""
    causes: list[Cause] = []
    for key, value in (meta.get("labels") or {}).items():
        causes += [errors.invalid("metadata.labels", key, message) for message in qualified_name_errors(key)]
        causes += [errors.invalid("metadata.labels", value, message) for message in label_value_errors(value)]
    total = 0
    for key, value in (meta.get("annotations") or {}).items():
        total += len(key) + len(value)
        causes += [
            errors.invalid("metadata.annotations", key, message) for message in qualified_name_errors(key.lower())
        ]
    if total > ANNOTATIONS_BYTES_MAX:
        causes.append(errors.too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX))
    return causes + _check_owners(meta.get("ownerReferences") or [])


def _check_owners(owners: list[dict[str, Any]]) -> list[Cause]:
    causes: list[Cause] = []
    controller = ""
    path = "metadata.ownerReferences"
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key) or (key == "apiVersion" and owner[key].count("/") > 1):
                word = "version" if key == "apiVersion" else key
                causes.append(errors.invalid(f"{path}.{key}", owner.get(key, ""), f"{word} must not be empty"))
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            causes.append(errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            this = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                causes.append(errors.invalid(path, owners, f"{text}{controller} and {this}"))
            controller = controller or this
    return causes


VALIDATED_FIELDS = ("labels", "annotations", "ownerReferences", "finalizers")


def has_metadata_changed(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether an update changes metadata that have to be validated."""
    before, after = old["metadata"], new["metadata"]
    return any(before.get(key) != after.get(key) for key in VALIDATED_FIELDS)


def check_metadata_update(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Errors of a metadata update, such as finalizers added during deletion; each reported twice, as upstream does."""
    causes: list[Cause] = []
    before, after = old["metadata"], new["metadata"]
    if before.get("deletionTimestamp"):
        added = [f for f in after.get("finalizers") or [] if f not in (before.get("finalizers") or [])]
        if added:
            listed = ", ".join(map(errors.format_value, sorted(added)))
            text = "no new finalizers can be added if the object is being deleted, found new finalizers "
            text += f"[]string{{{listed}}}"
            causes.append(errors.forbidden_field("metadata.finalizers", text))
    return (causes + _check_labels_annotations_owners(after)) * 2


def check_identity(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Errors for changed immutable fields; each reported twice, as upstream validates them generically and per kind."""
    causes: list[Cause] = []
    if new.get("uid") and new["uid"] != old["uid"]:
        causes.append(errors.invalid("metadata.uid", new["uid"], "field is immutable"))
    if new.get("deletionTimestamp") and not old.get("deletionTimestamp"):
        moment = timestamp(parse_timestamp(str(new["deletionTimestamp"])))
        shown = errors.Verbatim(f"{moment[:-1].replace('T', ' ')} +0000 UTC")
        causes.append(errors.invalid("metadata.deletionTimestamp", shown, "field is immutable"))
    grace = new.get("deletionGracePeriodSeconds")
    if grace is not None and grace != old.get("deletionGracePeriodSeconds"):
        causes.append(errors.invalid("metadata.deletionGracePeriodSeconds", grace, "field is immutable"))
    return causes * 2


STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io")
VERSION_NUMBER = re.compile(r"^\d+$")


def requested_revision(obj: dict[str, Any], resource: "Resource", name: str) -> str:
    """The resourceVersion in a body, "" if none. Raises 500 if it is not a number, as upstream does."""
    revision = str(obj["metadata"].get("resourceVersion") or "")
    if revision and not VERSION_NUMBER.fullmatch(revision):
        raise errors.untyped(f'strconv.ParseUint: parsing "{revision}": invalid syntax')
    return "" if revision == "0" else revision
