"""What every document on the wire has in common.

Fields are snake_case here and camelCase outside; an unknown field or a wrong type is refused with its path. A view is
read by attribute from the thing it shows. Conditions follow the Kubernetes convention, so the operator copies them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import key_of, resolve
from matrixcommon.model.stored import reader


def _make_strict(part: Any, model: type[BaseModel]) -> None:
    """Every number and truth value inside of the schema of `model`. What another model of ours says of its own fields
    was made so with that one."""
    if isinstance(part, dict):
        kind = part.get("type")
        if kind in ("int", "float", "bool"):
            part["strict"] = True
        elif kind == "model" and part["cls"] is not model and issubclass(part["cls"], ApiModel):
            return
        for name, inner in part.items():
            if name != "keys_schema":  # keys of a JSON object are texts, whatever they stand for
                _make_strict(inner, model)
    elif isinstance(part, list | tuple):
        for inner in part:
            _make_strict(inner, model)


_BY_NAME = frozenset({"properties", "$defs"})
"""Keywords of JSON Schema whose keys are names of fields or models, not keywords."""
_PROSE = frozenset({"description", "examples"})


def _bare(part: Any) -> Any:
    """A part of a JSON schema without descriptions and examples. `default`, `enum` and `const` stay as they are."""
    if isinstance(part, list):
        return [_bare(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for key, value in part.items():
        if key in _BY_NAME:
            found[key] = {name: _bare(each) for name, each in value.items()}
        elif key in ("default", "enum", "const"):
            found[key] = value
        elif key not in _PROSE:
            found[key] = _bare(value)
    return found


class ApiModel(BaseModel):
    """Base of every request and view: camelCase outside, attributes in, nothing unknown, no number without a value."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", from_attributes=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Numbers and truth values are just that: neither `true` nor `"8"` is a number of nodes."""
        schema = handler(source)
        if schema is not cls.__dict__.get("__pydantic_core_schema__"):  # else it was made so when the class was
            _make_strict(schema, cls)
        return schema

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Bodies as somebody sends them, for the OpenAPI documents; a test sends each to its services. Not inherited."""

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(source)
        if examples := cls.__dict__.get("EXAMPLES"):
            handler.resolve_ref_schema(schema)["examples"] = list(examples)
        return schema

    @classmethod
    def bare_schema(cls) -> dict[str, Any]:
        """Its JSON schema without descriptions and examples, which change nothing of what is accepted: to tell one
        version of it from another."""
        return cast(dict[str, Any], _bare(cls.model_json_schema()))

    @classmethod
    def from_stored(cls, document: Any) -> Self:
        """One of what was stored here, or by the service that answers with it: its bounds are not asked for any more
        (`model/stored.py`). Raises ValidationError where its structure is another."""
        try:
            return cls.model_validate(document)
        except (ValidationError, MatrixError):
            return cast(Self, reader(cls).validate_python(document))

    def wire(self) -> dict[str, Any]:
        """The JSON form, camelCase, without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def text(self) -> str:
        """The same as JSON text."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    REFERENCES: ClassVar[tuple[str, ...]] = ()
    """Fields that name other resources, or hold models that do."""

    def in_project(self, project: str) -> Self:
        """The same as a request of that project, with keys in place of the names it refers to. Raises InvalidField
        where one is no resource's name: its key could be longer than the name was allowed to be."""
        changed = {} if getattr(self, "project", project) == project else {"project": project}
        for field in self.REFERENCES:
            value = getattr(self, field)
            if value and (keyed := _keyed(value, project, to_camel(field))) != value:
                changed[field] = keyed
        return self.model_copy(update=changed) if changed else self

    @property
    def references(self) -> list[str]:
        """What it refers to; keys, once it is in its project."""
        found: list[str] = []
        for value in (getattr(self, field) for field in self.REFERENCES):
            found += [value] if isinstance(value, str) else value if isinstance(value, list) else []
            found += value.references if isinstance(value, ApiModel) else []
        return found


def build_when_used() -> None:
    """Models declared from now on are built when they are first used: a command uses few of those that it imports."""
    ApiModel.model_config["defer_build"] = True


def build_all() -> None:
    """Build the models that were put off, and others at once from now on: no request is to wait for them."""
    if ApiModel.model_config.pop("defer_build", False):
        left = [ApiModel]
        while left:
            model = left.pop()
            left += model.__subclasses__()
            model.model_config.pop("defer_build", None)
            model.model_rebuild()


def _keyed(value: Any, project: str, field: str) -> Any:
    if isinstance(value, list):
        return [_keyed(each, project, field) for each in value]
    if not isinstance(value, ApiModel):
        return checked_resource_name(resolve(value, project), field)
    try:
        return value.in_project(project)
    except InvalidField as wrong:
        wrong.field = f"{field}.{wrong.field}"
        raise


class Condition(ApiModel):
    """One observed aspect of a resource, true as of `observedGeneration`."""

    type: str = Field(description="which aspect")
    status: Literal["True", "False", "Unknown"] = Field(description="whether it is so")
    reason: str = Field(description="why, in one word for programs")
    message: str = Field("", description="why, in a sentence for people")
    observed_generation: int = Field(0, description="the generation of the spec that this was observed of")
    last_transition_time: str = Field("", description="since when the status is what it is")


class ResourceView(ApiModel):
    """What every resource shows of itself."""

    name: str
    project: str = "default"
    labels: dict[str, str] = Field(default_factory=empty_dict)
    generation: int = 1
    etag: str = ""
    state: str = ""
    conditions: list[Condition] = Field(default_factory=empty_list)
    created_at: str = ""
    updated_at: str = ""

    @property
    def key(self) -> str:
        """Under which the whole machine knows it."""
        return key_of(self.project, self.name)


class OperationView(ApiModel):
    """Long work: `done` with an `error` or without, else the step it is at and its share of progress (0 to 1)."""

    name: str
    target: str
    verb: str
    done: bool
    step: str = ""
    progress: float = 0.0
    error: dict[str, Any] | None = None
    started_at: str = ""
    finished_at: str | None = None
    etag: str = ""


def condition(
    conditions: list[dict[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str,
    *,
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """The conditions with one of them set; its transition time moves only when its status does.

    `status` None is Unknown. Returns a new list, of the same entries: nobody writes
    into one, as JSON columns notice assignment, not mutation.
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


def is_true(conditions: list[dict[str, Any]], type: str) -> bool:
    return any(current["type"] == type and current["status"] == "True" for current in conditions)


class StuckView(ApiModel):
    """A resource that does not get on, and for how many emulated seconds: it has been in a passing state for longer
    than its deadline, or its operation cannot be resumed."""

    name: str
    project: str
    state: str
    seconds: float
    reason: str = Field(description="DeadlineExceeded, or that of its operation's condition Stuck")
    message: str = Field(description="which deadline or operation, why, and what helps")
