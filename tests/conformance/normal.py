"""Two servers' answers made comparable: what must differ between any two servers is replaced by its kind.

Uids, times, resourceVersions, random name suffixes, addresses and continue tokens become `<uid>`, `<time>` and so on;
everything else, messages and managed fields among it, is compared to the letter. `differences(a, b)` says where two
values part, one line for each place.
"""

import re
from typing import Any

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
POINTER = re.compile(r"0x[0-9a-f]{6,}")
IN_RECORD = re.compile(r"(?<=the ResourceVersion )in record \(\d+\)")
AGE = re.compile(r"(\d+[smhdy])+|<unknown>")
TOO_LARGE = re.compile(r"(Too large resource version: \d+, current: )\d+")
QUOTED_TIME = re.compile(r'("(?:creationTimestamp|time)\\?":\\?")' + TIME.pattern)  # of an object inside a message
QUOTED_VERSION = re.compile(r'("resourceVersion\\?":\\?")\d+')
TIMES = frozenset(
    [
        "creationTimestamp",
        "deletionTimestamp",
        "time",
        "lastTransitionTime",
        "lastUpdateTime",
        "lastProbeTime",
        "firstTimestamp",
        "lastTimestamp",
        "expirationTimestamp",
        "startTime",
        "completionTime",
    ]
)
ADDRESSES = frozenset(("clusterIP",))


def normal(value: Any, table: bool = False) -> Any:
    """The value with everything replaced that differs between any two servers or two moments."""
    if isinstance(value, dict):
        table = table or value.get("kind") == "Table"
        if value.get("kind") == "Status":
            value = _with_causes_in_order(value)
        return {_key(key): _entry(key, one, value, table) for key, one in value.items()}
    if isinstance(value, list):
        return [normal(one, table) for one in value]
    if isinstance(value, str):
        text = POINTER.sub("<pointer>", UUID.sub("<uid>", value))
        if table and (AGE.fullmatch(text) or TIME.fullmatch(text)):
            return "<age>" if AGE.fullmatch(text) else "<time>"
        text = QUOTED_TIME.sub(r"\1<time>", QUOTED_VERSION.sub(r"\1<rv>", text))
        return IN_RECORD.sub("in record (<rv>)", TOO_LARGE.sub(r"\1<rv>", text))
    return value


def _key(key: str) -> str:
    """Managed fields name owners by their uid."""
    return UUID.sub("<uid>", key) if key.startswith("k:") else key


def _manager(entry: dict[str, Any]) -> list[str]:
    return [str(entry.get(key)) for key in ("operation", "manager", "apiVersion", "subresource")]


def _with_causes_in_order(status: dict[str, Any]) -> dict[str, Any]:
    """Several causes come in the order of Go's maps, which is none; the message lists them once more."""
    causes = (status.get("details") or {}).get("causes") or []
    if len(causes) < 2:
        return status
    ordered = sorted(causes, key=lambda cause: [str(cause.get(key)) for key in ("field", "reason", "message")])
    message = status.get("message", "").split(": [")[0]
    return status | {"details": status["details"] | {"causes": ordered}, "message": message}


def _entry(key: str, value: Any, holder: dict[str, Any], table: bool) -> Any:
    if isinstance(value, str):
        if key == "resourceVersion" and value not in ("", "0"):
            return "<rv>"
        if key in TIMES and TIME.fullmatch(value):
            return "<time>"
        if key in ADDRESSES and value not in ("", "None"):
            return "<address>"
        if key == "continue" and value:
            return "<continue>"
        if key == "name" and holder.get("generateName") and value.startswith(holder["generateName"]):
            return holder["generateName"] + "<5>"
    if key == "managedFields" and isinstance(value, list):  # those of one second and of the next come in another order
        return sorted((normal(one) for one in value), key=_manager)
    if key == "clusterIPs" and isinstance(value, list):
        return ["<address>" if one != "None" else one for one in value]
    return normal(value, table)


PRINTED = (
    (UUID, "<uid>"),
    (TIME, "<time>"),
    (re.compile(r"https://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r'(resourceVersion"?: )"\d+"'), r"\1<rv>"),
    (re.compile(r"(Resource Version: +)\d+"), r"\1<rv>"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4}"), "<time>"),
    (re.compile(r"(?<![\w.-])(\d+[smhd])+(?![\w.-])"), "<age>"),
    (re.compile(r"(?<=\S) {2,}"), "  "),
    (re.compile(r"(?m)^(---|\+\+\+) /tmp/.*$"), r"\1 <file>"),
    (re.compile(r"/tmp/\S+"), "<file>"),
)


def printed(text: str) -> list[str]:
    """The lines of a program's output, without uids, times, ages, versions and the widths of columns."""
    for pattern, instead in PRINTED:
        text = pattern.sub(instead, text)
    return [line.rstrip() for line in text.splitlines()]


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """`PATH: ours <json>, real <json>` for every place where the two part; [] when they are equal."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted(set(ours) | set(theirs)):
            at = f"{where}.{key}"
            if key not in ours:
                found.append(f"{at}: ours absent, real {short(theirs[key])}")
            elif key not in theirs:
                found.append(f"{at}: ours {short(ours[key])}, real absent")
            else:
                found += differences(ours[key], theirs[key], at)
        return found
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{where}: ours {short(ours)}, real {short(theirs)}"]
        return [
            line
            for i, pair in enumerate(zip(ours, theirs, strict=True))
            for line in differences(*pair, f"{where}[{i}]")
        ]
    if ours != theirs or type(ours) is not type(theirs):
        return [f"{where}: ours {short(ours)}, real {short(theirs)}"]
    return []


def short(value: Any, limit: int = 600) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
