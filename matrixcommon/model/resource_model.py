"""Base models of all documents on the wire.

Fields are snake_case in code and camelCase on the wire; an unknown field or a wrong type is refused with its path. A
view can be validated from the attributes of the object it shows. Conditions follow the Kubernetes convention, so the
operator copies them as they are.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import key_of, resolve
from matrixcommon.model.stored import stored_validator


def _make_strict(part: Any, model: type[BaseModel]) -> None:
    """Make every number and boolean in the schema of `model` strict. Nested ApiModels are skipped: their own schemas
    are already strict."""
    if isinstance(part, dict):
        kind = part.get("type")
        if kind in ("int", "float", "bool"):
            part["strict"] = True
        elif kind == "model" and part["cls"] is not model and issubclass(part["cls"], ApiModel):
            return
        for name, inner in part.items():
            if name != "keys_schema":  # keys of a JSON object are always strings
                _make_strict(inner, model)
    elif isinstance(part, list | tuple):
        for inner in part:
            _make_strict(inner, model)


_BY_NAME = frozenset({"properties", "$defs"})
"""Keywords of JSON Schema whose keys are names of fields or models, not keywords."""
_PROSE = frozenset({"description", "examples"})


def _strip_prose(part: Any) -> Any:
    """A part of a JSON schema without descriptions and examples. `default`, `enum` and `const` stay as they are."""
    if isinstance(part, list):
        return [_strip_prose(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for key, value in part.items():
        if key in _BY_NAME:
            found[key] = {name: _strip_prose(each) for name, each in value.items()}
        elif key in ("default", "enum", "const"):
            found[key] = value
        elif key not in _PROSE:
            found[key] = _strip_prose(value)
    return found


class ApiModel(BaseModel):
    """Base of every request and view: camelCase on the wire, can be built from attributes, refuses unknown fields and
    infinite or NaN numbers."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", from_attributes=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make numbers and booleans strict: neither `true` nor `"8"` is accepted as a number of nodes."""
        schema = handler(source)
        if schema is not cls.__dict__.get("__pydantic_core_schema__"):  # a finished class already has a strict one
            _make_strict(schema, cls)
        return schema

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Example request bodies for the OpenAPI documents; a test sends each to its service. Not inherited."""

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(source)
        if examples := cls.__dict__.get("EXAMPLES"):
            handler.resolve_ref_schema(schema)["examples"] = list(examples)
        return schema

    @classmethod
    def schema_without_prose(cls) -> dict[str, Any]:
        """The JSON schema without descriptions and examples, which do not affect what is accepted; for telling versions
        of the schema apart."""
        return cast(dict[str, Any], _strip_prose(cls.model_json_schema()))

    @classmethod
    def from_stored(cls, document: Any) -> Self:
        """Read a document that was stored, here or by the service that returned it, without enforcing bounds
        (`model/stored.py`). Raises ValidationError if its structure differs."""
        try:
            return cls.model_validate(document)
        except (ValidationError, MatrixError):
            return cast(Self, stored_validator(cls).validate_python(document))

    def wire(self) -> dict[str, Any]:
        """The JSON form, camelCase, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def text(self) -> str:
        """The same as JSON text."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    REFERENCES: ClassVar[tuple[str, ...]] = ()
    """Fields that name other resources, or hold models that do."""

    def in_project(self, project: str) -> Self:
        """A copy as a request of that project, with keys in place of the names it refers to. Raises InvalidField for an
        invalid name, which would otherwise yield a key longer than any name may be."""
        changed = {} if getattr(self, "project", project) == project else {"project": project}
        for field in self.REFERENCES:
            value = getattr(self, field)
            if value and (keyed := _with_keys(value, project, to_camel(field))) != value:
                changed[field] = keyed
        return self.model_copy(update=changed) if changed else self

    @property
    def references(self) -> list[str]:
        """The resources it refers to; keys after `in_project`, names before."""
        found: list[str] = []
        for value in (getattr(self, field) for field in self.REFERENCES):
            found += [value] if isinstance(value, str) else value if isinstance(value, list) else []
            found += value.references if isinstance(value, ApiModel) else []
        return found


def defer_builds() -> None:
    """Defer building of models declared from now on until their first use: a command uses few of those it imports."""
    ApiModel.model_config["defer_build"] = True


def build_deferred() -> None:
    """Build the deferred models now, and later ones when declared, so that no request has to wait for that."""
    if ApiModel.model_config.pop("defer_build", False):
        left = [ApiModel]
        while left:
            model = left.pop()
            left += model.__subclasses__()
            model.model_config.pop("defer_build", None)
            model.model_rebuild()


def _with_keys(value: Any, project: str, field: str) -> Any:
    if isinstance(value, list):
        return [_with_keys(each, project, field) for each in value]
    if not isinstance(value, ApiModel):
        return validate_resource_name(resolve(value, project), field)
    try:
        return value.in_project(project)
    except InvalidField as wrong:
        wrong.field = f"{field}.{wrong.field}"
        raise


class Condition(ApiModel):
    """One observed aspect of a resource, true as of `observedGeneration`."""

    type: str = Field(description="the aspect that the condition describes")
    status: Literal["True", "False", "Unknown"] = Field(description="whether the condition holds")
    reason: str = Field(description="why, as one word for programs")
    message: str = Field("", description="why, as a sentence for people")
    observed_generation: int = Field(0, description="the generation of the spec for which this was observed")
    last_transition_time: str = Field(
        "", description="when the status last changed, in emulated time; on Kubernetes objects in wall time"
    )


class ResourceView(ApiModel):
    """Fields that every resource shows."""

    name: str = Field(description="name of the resource, unique within its project")
    project: str = Field("default", description="project it belongs to; `default` also for what belongs to none")
    labels: dict[str, str] = Field(
        default_factory=empty_dict,
        description="labels by key: its owner's, for selection in filters, and the control plane's (`cloudmatrix.io/`)",
    )
    generation: int = Field(1, description="version of the spec: 1 at first, incremented with every change of the spec")
    etag: str = Field(
        "", description="version of the whole resource; sent as If-Match, a change applies to exactly that version"
    )
    state: str = Field(
        "", description="current state; `matrixctl explain` lists the states of its kind; empty for a kind without"
    )
    conditions: list[Condition] = Field(
        default_factory=empty_list, description="observed conditions, at most one of each type"
    )
    created_at: str = Field("", description="when it was created, in emulated time; empty for what is not stored")
    updated_at: str = Field("", description="when it last changed, in emulated time; empty for what is not stored")

    @property
    def key(self) -> str:
        """The key, unique across all projects."""
        return key_of(self.project, self.name)


class OperationView(ApiModel):
    """A long-running operation: `done`, with or without an `error`, or the step it is at and its progress (0 to 1)."""

    name: str = Field(description="name of the operation, unique within its project")
    target: str = Field(description="name of the resource that it acts on")
    verb: str = Field(description="what it does to its target, such as `create-instance` or `drain-elements`")
    done: bool = Field(description="whether it has ended, with or without success")
    step: str = Field("", description="step that is carried out or undone now; empty once it has ended")
    progress: float = Field(0.0, description="completed fraction of its steps, 0 to 1; falls while they are undone")
    error: dict[str, Any] | None = Field(
        None, description="why it failed or is undone, as a problem document (Cancelled if on request); else null"
    )
    started_at: str = Field("", description="when it was requested, in emulated time")
    finished_at: str | None = Field(None, description="when it ended, in emulated time; null until then")
    etag: str = Field("", description="version of the operation; changes with its progress")


def set_condition(
    conditions: list[dict[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str,
    *,
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """Return the conditions with one of them set; its transition time changes only when its status does.

    `status` None is Unknown. The list is new but shares its other entries, so never mutate an entry; JSON columns
    notice only assignment.
    """
    word = "Unknown" if status is None else str(bool(status))
    kept = [current for current in conditions if current["type"] != type]
    before = next((current for current in conditions if current["type"] == type), None)
    since = before["lastTransitionTime"] if before is not None and before["status"] == word else timestamp(now)
    entry = {
        "type": type,
        "status": word,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
    position = next((at for at, current in enumerate(conditions) if current["type"] == type), len(kept))
    return [*kept[:position], entry, *kept[position:]]


def is_condition_true(conditions: list[dict[str, Any]], type: str) -> bool:
    return any(current["type"] == type and current["status"] == "True" for current in conditions)


class StuckView(ApiModel):
    """A stuck resource, and for how many emulated seconds: it has been in a transitional state for longer than the
    deadline, or its operation cannot be resumed."""

    name: str = Field(description="name of the stuck resource, or of the target of the stuck operation")
    project: str = Field(description="project it belongs to")
    state: str = Field(description="state that it does not leave")
    seconds: float = Field(description="for how long it has been in that state or stuck, in emulated seconds")
    reason: str = Field(description="DeadlineExceeded, or the reason of its operation's condition Stuck")
    message: str = Field(description="which deadline or operation, why, and what to do about it")
