"""Behaviour of an emulated container: how long it runs, its exit code and its output.

No program runs. A few common commands are recognised (`sleep 5`, `echo hi`, `true`, `false`, `exit 3`, alone or joined
in `sh -c`); for everything else, annotations of the pod define the behaviour:

    kubelet.cloudmatrix.io/run-seconds: "30"        the containers exit after that time
    kubelet.cloudmatrix.io/exit-code: "1"           with this exit code
    kubelet.cloudmatrix.io/stop-seconds: "4"        how long they take to stop when terminated
    kubelet.cloudmatrix.io/ready: "false"           the readiness probe fails while this is set
    kubelet.cloudmatrix.io/image-pull: "fail"       images cannot be pulled
    kubelet.cloudmatrix.io/log: "line one\\nline two"  output at the start

A suffix limits an annotation to one container: `kubelet.cloudmatrix.io/run-seconds.worker`.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Any

PREFIX = "kubelet.cloudmatrix.io/"


@dataclass(frozen=True)
class ScriptAction:
    """What a container does. `run_s` is None if it runs until it is stopped."""

    run_s: float | None = None
    exit_code: int = 0
    lines: tuple[str, ...] = ()


def pod_annotation(pod: dict[str, Any], name: str, container: str = "") -> str:
    annotations = pod["metadata"].get("annotations") or {}
    return str(annotations.get(f"{PREFIX}{name}.{container}", annotations.get(PREFIX + name, "")))


def parse_number(text: str) -> float | None:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return None


def container_action(pod: dict[str, Any], container: dict[str, Any]) -> ScriptAction:
    name = container["name"]
    scripted = parse_command([*(container.get("command") or []), *(container.get("args") or [])])
    run_s = parse_number(pod_annotation(pod, "run-seconds", name))
    code = parse_number(pod_annotation(pod, "exit-code", name))
    printed = tuple(pod_annotation(pod, "log", name).splitlines())
    run_s = run_s if run_s is not None else scripted.run_s
    if run_s is None and code is not None:
        run_s = 0.0
    return ScriptAction(run_s, int(code) if code is not None else scripted.exit_code, printed + scripted.lines)


def parse_command(words: list[str]) -> ScriptAction:
    """The action of a command line if all of it is recognised; otherwise one that runs until stopped."""
    if len(words) >= 3 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1] in ("-c", "-ec"):
        parts = [part.strip() for part in re.split(r";|&&|\n", words[2]) if part.strip()]
        try:
            steps = [_parse_step(shlex.split(part)) for part in parts]
        except ValueError:
            return ScriptAction()
    else:
        steps = [_parse_step(words)]
    run_s, code = 0.0, 0
    lines: list[str] = []
    for step in steps:
        if step is None:
            return ScriptAction(lines=tuple(lines))
        if step.run_s is None:
            return ScriptAction(None, 0, (*lines, *step.lines))
        run_s, code = run_s + step.run_s, step.exit_code
        lines += step.lines
        if step.exit_code:
            break
    return ScriptAction(run_s, code, tuple(lines)) if steps else ScriptAction()


def _parse_step(words: list[str]) -> ScriptAction | None:
    if not words:
        return None
    name, arguments = words[0].rpartition("/")[2], words[1:]
    if name == "sleep" and len(arguments) == 1:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", arguments[0])
        if match is None:
            return ScriptAction(None) if arguments[0] in ("infinity", "inf") else None
        return ScriptAction(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]])
    if name == "echo":
        return (
            None
            if any(mark in word for word in arguments for mark in "$`|>")
            else ScriptAction(0.0, 0, (" ".join(arguments),))
        )
    if name in ("true", "false"):
        return ScriptAction(0.0, int(name == "false"))
    if name == "exit" and len(arguments) == 1 and arguments[0].isdigit():
        return ScriptAction(0.0, int(arguments[0]) % 256)
    return None
