"""Building blocks of table cells: ages, labels, selectors and containers."""

from typing import Any

from matrixcontainer.kubeapi.registry.printer_columns import age_of

Obj = dict[str, Any]
NONE = "<none>"
UNSET = "<unset>"
LABEL_OPERATORS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def name(obj: Obj) -> str:
    return str(obj["metadata"].get("name", ""))


def age(obj: Obj, now: float) -> str:
    return age_of(obj["metadata"].get("creationTimestamp"), now)


def get_nested(obj: Obj, *keys: str, default: Any = None) -> Any:
    """The value at nested keys, or the default."""
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value


def labels(value: Obj | None) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((value or {}).items())) or NONE


def label_selector(selector: Obj | None, nothing: str = NONE) -> str:
    """Format a selector as `a=b,c in (d,e),!f`, sorted by key."""
    if not selector:
        return nothing
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or []:
        operator = LABEL_OPERATORS.get(term.get("operator", ""), "{key}")
        values = ",".join(sorted(term.get("values") or []))
        terms.append((term.get("key", ""), operator.format(key=term.get("key", ""), values=values)))
    return ",".join(text for _, text in sorted(terms)) or nothing


def containers(spec: Obj) -> list[Any]:
    """Names and images of a pod spec's containers."""
    current = spec.get("containers") or []
    return [",".join(one.get("name", "") for one in current), ",".join(one.get("image", "") for one in current)]
