"""The subset of JSONPath that printer columns, scale paths and selectable fields use.

`.spec.x`, `.metadata.annotations.a\\.b`, `.items[0]`, `.items[*].name`, `.conditions[?(@.type=="Ready")].status`.
"""

import re
from functools import lru_cache
from typing import Any

TOKEN = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+) | \[(?P<index>-?\d+)\] | \[(?P<star>\*)\] | \['(?P<quoted>[^']*)'\]
      | \[\?\(\s*@(?P<left>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<right>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


class JsonPath:
    """A compiled path. Raises ValueError if the text is not supported."""

    def __init__(self, text: str) -> None:
        self.text = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
        self.steps: list[tuple[str, Any]] = []
        at = 0
        while at < len(self.text):
            match = TOKEN.match(self.text, at)
            if match is None:
                raise ValueError(f"unrecognized JSONPath at {self.text[at:]!r}")
            if match["name"] is not None:
                self.steps.append(("key", re.sub(r"\\(.)", r"\1", match["name"])))
            elif match["quoted"] is not None:
                self.steps.append(("key", match["quoted"]))
            elif match["index"] is not None:
                self.steps.append(("index", int(match["index"])))
            elif match["star"] is not None:
                self.steps.append(("all", None))
            else:
                right = match["right"].strip("\"'")
                self.steps.append(("where", (JsonPath(match["left"]), match["op"] == "==", right)))
            at = match.end()

    def find(self, obj: Any) -> list[Any]:
        values = [obj]
        for step, argument in self.steps:
            values = [found for value in values for found in _evaluate_step(value, step, argument)]
        return values

    def first(self, obj: Any) -> Any:
        found = self.find(obj)
        return found[0] if found else None

    def keys(self) -> list[str]:
        """The keys of a plain field path. Raises ValueError for any other path."""
        if any(step != "key" for step, _ in self.steps):
            raise ValueError(f"{self.text} is not a plain field path")
        return [key for _, key in self.steps]

    def set(self, obj: dict[str, Any], value: Any) -> None:
        """Set the value at the path. Raises ValueError if a parent is not an object."""
        *parents, last = self.keys()
        for key in parents:
            obj = obj.setdefault(key, {})
            if not isinstance(obj, dict):
                raise ValueError(f"value cannot be set because {self.text}: {key} is not an object")
        obj[last] = value


@lru_cache(maxsize=1024)
def compile_path(text: str) -> JsonPath:
    """A cached compiled path, for paths in definitions that every write uses. Raises ValueError, as `JsonPath` does."""
    return JsonPath(text)


def _evaluate_step(value: Any, step: str, argument: Any) -> list[Any]:
    if step == "key":
        return [value[argument]] if isinstance(value, dict) and argument in value else []
    if step == "index":
        return [value[argument]] if isinstance(value, list) and -len(value) <= argument < len(value) else []
    members = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if step == "all":
        return members
    path, equal, right = argument
    return [member for member in members if (_text(path.first(member)) == right) == equal]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
