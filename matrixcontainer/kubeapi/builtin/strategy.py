"""The base strategy of built-in kinds: defaults, canonical form and decoding by the type table."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.builtin import conversion
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo, Strategy, decoding_error

Validator = Callable[[dict[str, Any], dict[str, Any] | None], list[Cause]]


class BuiltinStrategy(Strategy):
    """Behaviour of a built-in kind without special rules; `validator` applies its type's rules."""

    type_name = ""  # in the table of built-in types
    validator: Validator | None = None

    def default(self, obj: dict[str, Any]) -> None:
        """Normalise the object and set the defaults of its type."""
        if self.type_name:
            conversion.drop_empty(obj, self.type_name)
            conversion.normalise_texts(obj, self.type_name)
            conversion.apply_defaults(obj, self.type_name)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        return self.validator(obj, old) if self.validator is not None else []

    def check_types(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        super().check_types(obj, resource)
        if not self.type_name:  # otherwise keep empty values and quantities as written: appliers own them as they are
            conversion.drop_empty(obj, resource.type_name)
        try:
            conversion.normalise_texts(obj, resource.type_name, canonicalise=False)
        except conversion.DecodingError as failure:
            raise decoding_error(resource, str(failure)) from failure
